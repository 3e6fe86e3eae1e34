//! Things on the command line by their names: nobody knows an id by heart.

use std::convert::Infallible;
use std::str::FromStr;

use anyhow::{Context, bail};
use domain::external_id::ExternalId;
use uuid::Uuid;

use super::{destination, tenant};
use crate::client::Client;

/// An id, what its platform calls it, or a name that no other has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named(String);

impl FromStr for Named {
    type Err = Infallible;
    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self(text.to_owned()))
    }
}

impl From<Uuid> for Named {
    fn from(id: Uuid) -> Self {
        Self(id.to_string())
    }
}

impl Named {
    /// The id, where it is one.
    #[must_use]
    pub fn id(&self) -> Option<Uuid> {
        self.0.parse().ok()
    }

    /// One of the destinations of the key's tenant.
    pub(super) async fn destination(&self, client: &Client) -> anyhow::Result<Uuid> {
        let all = async || {
            let found = destination::list(client).await?;
            anyhow::Ok(
                found
                    .into_iter()
                    .map(|one| (one.id, one.name, one.external_id)),
            )
        };
        self.among("destination", all).await
    }

    /// One of the tenants; for an administrator.
    pub(super) async fn tenant(&self, client: &Client) -> anyhow::Result<Uuid> {
        let all = async || {
            let found = tenant::list(client).await?;
            anyhow::Ok(
                found
                    .into_iter()
                    .map(|one| (one.id, one.name, one.external_id)),
            )
        };
        self.among("tenant", all).await
    }

    async fn among<I: Iterator<Item = (Uuid, String, Option<ExternalId>)>>(
        &self,
        kind: &str,
        all: impl AsyncFnOnce() -> anyhow::Result<I>,
    ) -> anyhow::Result<Uuid> {
        if let Some(id) = self.id() {
            return Ok(id);
        }
        let all = all().await;
        let all = all.with_context(|| format!("look for the {kind} called {}", self.0))?;
        let mut found = Vec::new();
        for (id, name, external) in all {
            if external.is_some_and(|external| external.as_str() == self.0) {
                return Ok(id);
            }
            if name == self.0 {
                found.push(id);
            }
        }
        match found[..] {
            [id] => Ok(id),
            [] => bail!(
                "no {kind} is called {}: `paceline {kind} list` shows their names and ids",
                self.0
            ),
            _ => {
                let ids: Vec<String> = found.iter().map(Uuid::to_string).collect();
                bail!(
                    "{} {kind}s are called {}: name one by its id: {}",
                    found.len(),
                    self.0,
                    ids.join(", ")
                )
            }
        }
    }
}
