//! Limits in SQL say the same as limits in Rust.

use domain::limit::{Count, Shape};
use domain::policy::LimitSettings;
use engine::ports::{Catalog, DEFAULT_TENANT};

use crate::database::{Database, per_second};

#[tokio::test]
async fn nonsense_is_refused_by_the_name_of_its_column() {
    let database = Database::create().await;
    let id = database.destination(per_second(20)).await;
    for (column, sql) in [
        ("limit_per_second", "limit_per_second = -1"),
        ("limit_per_minute", "limit_per_minute = 1000000001"),
        ("limit_per_hour", "limit_per_hour = -5"),
        ("limit_per_day", "limit_per_day = 2000000000"),
        ("burst", "burst = 0"),
        ("burst", "shape = 'leaky_bucket', burst = 2"),
        ("shape", "shape = 'square'"),
        ("max_in_flight", "max_in_flight = 0"),
        ("safety_margin", "safety_margin = 1.5"),
        ("safety_margin", "safety_margin = 'NaN'"),
        ("margin_cap", "margin_cap = 'NaN'"),
        ("count", "count = 'arrival'"),
        ("unlimited", "unlimited = true"),
        ("state", "state = 'asleep'"),
    ] {
        let sql = format!("update destinations set {sql} where id = '{id}'");
        let error = database.refused(&sql).await;
        let constraint = error
            .as_database_error()
            .and_then(|error| error.constraint());
        assert_eq!(
            constraint,
            Some(&*format!("destinations_check_{column}")),
            "{sql}: {error}"
        );
    }
    let history = database.store.limit_history(id).await.unwrap();
    assert_eq!(history.len(), 1, "what is refused leaves no history");
}

/// A small generator: the rows repeat from its seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % bound
    }

    fn maybe(&mut self, bound: u64) -> Option<u32> {
        (self.below(2) == 0).then(|| u32::try_from(self.below(bound)).unwrap())
    }

    /// Settings that the constraints take.
    fn settings(&mut self) -> LimitSettings {
        let unlimited = self.below(6) == 0;
        let mut limit = || self.maybe(100).filter(|_| !unlimited);
        let (per_second, per_minute) = (limit(), limit());
        let (per_hour, per_day) = (limit(), limit());
        let inherits = self.below(3) == 0;
        let shape = match self.below(4) {
            0 => None,
            1 => Some(Shape::SlidingWindow),
            2 => Some(Shape::TokenBucket),
            _ => Some(Shape::LeakyBucket),
        };
        let burst = self.maybe(20).map(|burst| match shape {
            Some(Shape::LeakyBucket) => 1,
            _ => burst + 1,
        });
        LimitSettings {
            per_second: per_second.filter(|_| !inherits),
            per_minute: per_minute.filter(|_| !inherits),
            per_hour: per_hour.filter(|_| !inherits),
            per_day: per_day.filter(|_| !inherits),
            unlimited,
            burst,
            shape,
            max_in_flight: self.maybe(9).map(|places| places + 1),
            safety_margin: self.maybe(5).map(|fifths| f64::from(fifths) / 5.0),
            margin_cap: self.maybe(5).map(|fifths| f64::from(fifths) / 5.0),
            count: self.maybe(2).map(|which| match which {
                0 => Count::Start,
                _ => Count::Response,
            }),
            allowed_per_minute: None,
        }
    }
}

fn sql(number: Option<u32>) -> String {
    number.map_or("null".to_owned(), |number| number.to_string())
}

#[tokio::test]
async fn history_is_resolved_as_the_domain_does() {
    let database = Database::create().await;
    let mut random = Random(7);
    for _ in 0..80 {
        let tier = LimitSettings {
            safety_margin: None,
            margin_cap: None,
            count: None,
            allowed_per_minute: None,
            ..random.settings()
        };
        let shape = tier
            .shape
            .map_or("null".to_owned(), |shape| format!("'{}'", shape.as_str()));
        database
            .sql(&format!(
                "update tiers set limit_per_second = {}, limit_per_minute = {},
                    limit_per_hour = {}, limit_per_day = {}, unlimited = {}, burst = {},
                    shape = {shape}, max_in_flight = {}
                where name = 'standard'",
                sql(tier.per_second),
                sql(tier.per_minute),
                sql(tier.per_hour),
                sql(tier.per_day),
                tier.unlimited,
                sql(tier.burst),
                sql(tier.max_in_flight),
            ))
            .await;
        let own = random.settings();
        let id = database.destination(own).await;
        let history = database.store.limit_history(id).await.unwrap();
        assert_eq!(
            history[0].effective,
            own.or_tier(&tier),
            "{own:?} under {tier:?}"
        );
        let read = database
            .store
            .destination(DEFAULT_TENANT, id)
            .await
            .unwrap();
        assert_eq!((read.limits, read.effective), (own, own.or_tier(&tier)));
    }
}

#[tokio::test]
async fn times_cross_exactly() {
    let database = Database::create().await;
    let wrong = "select count(*) from (
            select m from unnest(array[0, 1, -1, 999999, -86400000001, 1790000000123456]::bigint[])
                as n (m)
            union all
            select 1700000000000000 + g * 7919::bigint * 1000003 from generate_series(1, 20000) g
        ) x where micros(from_micros(m)) <> m or from_micros(micros(from_micros(m))) <> from_micros(m)";
    assert_eq!(database.number(wrong).await, 0);
}

/// What is called is planned anew each time that its statement runs: of a ceiling this was
/// two thirds of what reading a destination took.
#[tokio::test]
async fn ceilings_and_limits_are_planned_with_their_statement() {
    let database = Database::create().await;
    let mut user = database.user().await;
    let plan: Vec<String> = sqlx::query_scalar(
        "explain (verbose, costs off)
        select c.*, own_limits(d), tier_limits(t)
        from destinations d
        join tenants n on n.id = d.tenant_id
        join tiers t on t.name = n.tier
        cross join lateral ceiling_of(d, t) c",
    )
    .fetch_all(&mut user)
    .await
    .unwrap();
    for function in ["ceiling_of", "own_limits", "tier_limits"] {
        let called = plan.iter().find(|line| line.contains(function));
        assert_eq!(called, None, "{plan:#?}");
    }
}
