//! How old events may become, by the tier of a tenant: what its destinations may say.

use std::time::Duration;

use domain::batch::BatchSettings;
use domain::ceiling::{Ceiling, MAX_AGE_SECONDS};
use domain::ids::{DestinationId, TenantId};
use domain::retry::{MAX_DELAY, RetrySettings};
use engine::ports::{CatalogError, DEFAULT_TENANT, RetryRules};

use super::ceilings::bounded;
use super::{TenantWorld, refuses};

fn of_age(age_seconds: Option<u32>) -> Ceiling {
    Ceiling {
        age_seconds,
        ..Ceiling::default()
    }
}

async fn set(
    world: &TenantWorld,
    (tenant, id): (TenantId, DestinationId),
    max_age: Option<Duration>,
) -> Result<(), CatalogError> {
    let rules = RetryRules {
        policy: RetrySettings::default(),
        max_age,
    };
    world.backlog.set_retry_rules(tenant, id, &rules).await
}

/// Under ceilings of all kinds, and each as another one than there is.
pub async fn an_age_is_refused_where_the_domain_refuses_it(world: &TenantWorld) {
    let tenant = world.tenant("free").await.id;
    let id = world
        .destination_of(tenant, &world.destination().build())
        .await;
    let of = (tenant, id);
    let (mut taken, mut refused) = (0, 0);
    for most in [None, Some(1), Some(60), Some(3_600), Some(MAX_AGE_SECONDS)] {
        let ceiling = of_age(most);
        bounded(world, ceiling).await;
        let found = world.catalog.destination(tenant, id).await.unwrap();
        assert_eq!(found.ceiling, ceiling);
        assert_eq!(found.own_ceiling.age_seconds, most);
        for seconds in [1, 60, 3_600, u64::from(MAX_AGE_SECONDS)] {
            let whole = Duration::from_secs(seconds);
            let millisecond = Duration::from_millis(1);
            for age in [whole - millisecond, whole, whole + millisecond] {
                if age > MAX_DELAY {
                    continue;
                }
                set(world, of, None).await.unwrap();
                let stored = set(world, of, Some(age)).await;
                match ceiling.check_age(Some(age)) {
                    Ok(()) => {
                        stored.unwrap();
                        taken += 1;
                    }
                    Err(_) => {
                        refuses(stored, "max_age_ms");
                        refused += 1;
                    }
                }
            }
        }
    }
    assert!(
        taken > 20 && refused > 10,
        "{taken} taken, {refused} refused"
    );
}

/// By SQL, at creation and where another tenant gets it; what is there stays until it is
/// changed, and the default tenant has no ceiling.
pub async fn an_age_is_held_to_the_ceiling_by_whatever_way_it_is_set(world: &TenantWorld) {
    let tenant = world.tenant("free").await.id;
    let id = world
        .destination_of(tenant, &world.destination().build())
        .await;
    let hour = Duration::from_secs(3_600);
    set(world, (tenant, id), Some(hour)).await.unwrap();
    bounded(world, of_age(Some(60))).await;
    // What it has, said once more beside other rules.
    set(world, (tenant, id), Some(hour)).await.unwrap();
    let longer = Some(hour + Duration::from_secs(1));
    refuses(set(world, (tenant, id), longer).await, "max_age_ms");
    world
        .sql(&format!(
            "update destinations set name = 'still there' where id = '{id}'"
        ))
        .await;
    let ours = world
        .destination_of(DEFAULT_TENANT, &world.destination().build())
        .await;
    let standard = "update tiers set ceiling_age_seconds = 60 where name = 'standard'";
    world.sql(standard).await;
    set(world, (DEFAULT_TENANT, ours), longer).await.unwrap();
    for sql in [
        format!("update destinations set max_age_ms = 60001 where id = '{id}'"),
        format!("update destinations set max_age_ms = 60001, tier_age_ms = null where id = '{id}'"),
        format!("update destinations set tenant_id = '{tenant}' where id = '{ours}'"),
        format!(
            "insert into destinations (id, tenant_id, url, max_age_ms) \
            values ('{}', '{tenant}', 'https://x.example/', 60001)",
            world.id()
        ),
    ] {
        assert!(world.refused_sql(&sql).await.contains("ceiling"), "{sql}");
    }
    let most = format!("update destinations set max_age_ms = 60000 where id = '{id}'");
    world.sql(&most).await;
    refuses(set(world, (tenant, id), Some(hour)).await, "max_age_ms");
}

/// Each of its events would be too old before it is due.
pub async fn a_batch_waits_less_than_the_age_of_the_tier(world: &TenantWorld) {
    let tenant = world.tenant("free").await.id;
    bounded(world, of_age(Some(30))).await;
    let id = world
        .destination_of(tenant, &world.destination().build())
        .await;
    let waits = async |max_wait_ms| {
        let batches = BatchSettings {
            max_events: Some(10),
            max_bytes: None,
            max_wait_ms: Some(max_wait_ms),
        };
        let set = world.backlog.set_batch_settings(tenant, id, &batches);
        set.await
    };
    refuses(waits(30_000).await, "max_wait_ms");
    waits(29_999).await.unwrap();
    let half = Some(Duration::from_secs(15));
    refuses(set(world, (tenant, id), half).await, "max_age_ms");
    // Nor is a wait of before in the way of other rules: it is shorter then than it says.
    bounded(world, of_age(Some(20))).await;
    set(world, (tenant, id), None).await.unwrap();
    refuses(waits(20_000).await, "max_wait_ms");
}
