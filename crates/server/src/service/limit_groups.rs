//! Limit groups: limits that several destinations have together.

use std::collections::BTreeMap;

use domain::ids::DestinationId;
use domain::limit_group::{GroupLimits, GroupName, MAX_MEMBERS};
use engine::ports::{CatalogError, Destination, LimitGroup};

use super::rules;
use super::{Service, ServiceError};

impl Service {
    /// A page by name.
    pub async fn limit_groups(
        &self,
        after: Option<GroupName>,
        limit: u32,
    ) -> Result<Vec<LimitGroup>, ServiceError> {
        rules::page(limit)?;
        let catalog = &self.reading.catalog;
        let found = catalog.limit_groups(self.tenant, after.as_ref(), limit);
        Ok(found.await?)
    }

    /// One with its members.
    pub async fn limit_group(&self, name: &GroupName) -> Result<LimitGroup, ServiceError> {
        Ok((self.reading.catalog.limit_group(self.tenant, name)).await?)
    }

    /// The one that a destination is in; `None` if it is in none, or that has just gone.
    pub(super) async fn group_of(
        &self,
        destination: &Destination,
    ) -> Result<Option<LimitGroup>, ServiceError> {
        let Some(name) = &destination.limit_group else {
            return Ok(None);
        };
        match self.reading.catalog.limit_group(self.tenant, name).await {
            Err(CatalogError::NotFound(_)) => Ok(None),
            found => Ok(Some(found?)),
        }
    }

    /// Those that these destinations are in, each once, by name.
    pub(super) async fn groups_of(
        &self,
        destinations: &[Destination],
    ) -> Result<Vec<LimitGroup>, ServiceError> {
        let mut named: BTreeMap<&GroupName, &Destination> = BTreeMap::new();
        for destination in destinations {
            named.extend(
                destination
                    .limit_group
                    .as_ref()
                    .map(|name| (name, destination)),
            );
        }
        let mut groups = Vec::with_capacity(named.len());
        for destination in named.into_values() {
            groups.extend(self.group_of(destination).await?);
        }
        Ok(groups)
    }

    /// Creates it, or sets all of its limits. Members that waited for it are looked at.
    pub async fn put_limit_group(
        &self,
        name: &GroupName,
        limits: &GroupLimits,
    ) -> Result<LimitGroup, ServiceError> {
        limits.validate().map_err(|invalid| {
            let period = invalid.field.trim_start_matches("limit_");
            ServiceError::invalid(format!("limits.{period}"), invalid.problem)
        })?;
        let put = self.catalog.put_limit_group(self.tenant, name, limits);
        let put = put.await?;
        self.look_at_changed(&put.members).await;
        Ok(put)
    }

    /// Refuses a group that a destination cannot be in, by its field. The store refuses it
    /// as well, in fewer words.
    pub(super) async fn check_group(
        &self,
        name: Option<&GroupName>,
        member: Option<DestinationId>,
    ) -> Result<(), ServiceError> {
        const _: () = assert!(MAX_MEMBERS == 100, "the text says so");
        let Some(name) = name else {
            return Ok(());
        };
        let group = match self.catalog.limit_group(self.tenant, name).await {
            Err(CatalogError::NotFound(_)) => {
                let problem = "there is no such limit group: create it first";
                return Err(ServiceError::invalid("limit_group", problem));
            }
            found => found?,
        };
        let is_member = member.is_some_and(|member| group.members.contains(&member));
        if !is_member && group.members.len() >= MAX_MEMBERS as usize {
            let problem = "has 100 members, which is all that a limit group may have";
            return Err(ServiceError::invalid("limit_group", problem));
        }
        Ok(())
    }

    /// Deletes one that has no members.
    pub async fn delete_limit_group(&self, name: &GroupName) -> Result<(), ServiceError> {
        Ok(self.catalog.delete_limit_group(self.tenant, name).await?)
    }
}
