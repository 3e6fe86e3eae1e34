//! What is there before a run begins: tenants with their keys, and destinations
//! with their secrets, rules and proxies.

use std::sync::Arc;

use domain::access::{Scope, Scopes};
use domain::batch::BatchSettings;
use domain::handshake::Handshake;
use domain::ids::TenantId;
use domain::limit_group::{GroupLimits, GroupName};
use domain::smart::SmartDelivery;
use engine::ports::{DEFAULT_TENANT, NewDestination, NewKey, NewTenant, RetryRules};
use secrecy::ExposeSecret;
use server::edge::Mint;
use server::parts::Stored;
use server::receiver::Receiver;

use super::client::KEY;
use super::log::Tried;
use super::news;
use super::proxy::Proxy;
use super::secrets::Secrets;
use super::world::{Destination, GROUP, Manners, TENANTS, TIER};

/// A tenant of a run.
#[derive(Debug, Clone)]
pub(crate) struct Tenant {
    pub(crate) id: TenantId,
    /// What its client posts with.
    pub(crate) key: String,
}

/// The default tenant, with the key that the processes are started with, and the
/// others, each with one of its own that is good for posting and for its destinations.
pub(crate) async fn tenants(stored: &dyn Stored) -> anyhow::Result<Vec<Tenant>> {
    let mint = Mint::from_system()?;
    let mut tenants = vec![Tenant {
        id: DEFAULT_TENANT,
        key: KEY.to_owned(),
    }];
    for name in TENANTS.into_iter().skip(1) {
        let new = NewTenant {
            external_id: None,
            id: TenantId(mint.uuid()),
            name: name.to_owned(),
            tier: TIER.to_owned(),
            max_in_flight: None,
            ingest_per_second: None,
        };
        let tenant = stored.create_tenant(&new).await?;
        let minted = mint.key();
        let key = NewKey {
            id: minted.id,
            name: String::new(),
            digest: minted.digest,
            scopes: Scopes::from_iter([Scope::Ingest, Scope::Manage]),
            expires_in: None,
        };
        stored.create_key(tenant.id, &key).await?;
        tenants.push(Tenant {
            id: tenant.id,
            key: minted.text.expose_secret().to_owned(),
        });
    }
    Ok(tenants)
}

/// Where destinations are made.
pub(crate) struct Site<'a> {
    pub(crate) stored: &'a dyn Stored,
    pub(crate) tenants: &'a [Tenant],
    pub(crate) secrets: &'a Arc<Secrets>,
    pub(crate) receiver: &'a Receiver,
    /// What the group of some of them allows.
    pub(crate) group: GroupLimits,
}

impl Site<'_> {
    /// Creates the destinations, and the proxies before some of them.
    pub(crate) async fn create(
        &self,
        planned: &[Destination],
    ) -> anyhow::Result<(Vec<Tried>, Vec<Option<Proxy>>)> {
        let (mut tried, mut links) = (Vec::new(), Vec::new());
        let group = GroupName::kept(GROUP.to_owned());
        let group = (self.stored).put_limit_group(DEFAULT_TENANT, &group, &self.group);
        group.await?;
        for (number, one) in (0_u32..).zip(planned) {
            let link = match one.proxied {
                true => Some(Proxy::start(self.receiver.address()).await?),
                false => None,
            };
            let address = link
                .as_ref()
                .map_or(self.receiver.address(), Proxy::address);
            let url = format!("http://{address}/r/{number}");
            tried.push(self.create_one(number, one, url).await?);
            links.push(link);
        }
        Ok((tried, links))
    }

    async fn create_one(
        &self,
        number: u32,
        one: &Destination,
        url: String,
    ) -> anyhow::Result<Tried> {
        let (tenant, stored) = (self.tenants[one.tenant].id, self.stored);
        let new = NewDestination {
            external_id: None,
            id: self.secrets.id(),
            name: one.name.clone(),
            url,
            event_types: Vec::new(),
            filter: None,
            limits: one.limits,
            pass_traceparent: false,
            handshake: Handshake::None,
            limit_group: one.grouped.then(|| GroupName::kept(GROUP.to_owned())),
        };
        let secret = [self.secrets.first(number, (tenant, new.id))?];
        let creating = stored.create_destination_with(tenant, &new, &secret);
        let id = creating.await?.id;
        let breaker = one.manners.breaker();
        stored.change_breaker(tenant, id, &breaker).await?;
        if let Manners::Capable(_) = one.manners {
            let smart = SmartDelivery::On;
            stored.set_smart_delivery(tenant, id, smart).await?;
        }
        if let Some(policy) = one.manners.retries() {
            let rules = RetryRules {
                policy,
                max_age: None,
            };
            stored.set_retry_rules(tenant, id, &rules).await?;
        }
        if one.batch > 1 {
            let batches = BatchSettings {
                max_events: Some(one.batch),
                ..BatchSettings::default()
            };
            (stored.set_batch_settings(tenant, id, &batches)).await?;
        }
        let told = news::arrange(stored, (tenant, id), one).await?;
        Ok(Tried {
            id: id.0,
            name: one.name.clone(),
            proxied: one.proxied,
            told,
            tenant: tenant.0,
            doomed: one.manners.is_doomed(),
        })
    }
}
