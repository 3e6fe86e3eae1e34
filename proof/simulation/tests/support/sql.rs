//! The few statements of SQL that the store's contract runs, by the model's
//! typed methods: `update TABLE set COLUMN = VALUE, … where KEY = 'VALUE'`.

use std::str::FromStr;
use std::sync::Arc;

use async_trait::async_trait;
use contract::store::Backdoor;
use domain::policy::LimitSettings;
use domain::time::Timestamp;
use engine::ports::{Catalog, CatalogError, DEFAULT_TENANT, DestinationChange, Store};
use simulation::model::ModelStore;

const INSERT_TENANT: &str = "insert into tenants (id, name, tier) values (";

/// A user's shell on the model.
pub(crate) struct Shell {
    store: Arc<ModelStore>,
}

impl Shell {
    pub(crate) fn new(store: Arc<ModelStore>) -> Self {
        Self { store }
    }

    async fn run(&self, update: &Update<'_>) -> Result<(), String> {
        let refused = |error: CatalogError| match error {
            CatalogError::Invalid { field, .. } => constraint(update.table, &field),
            other => other.to_string(),
        };
        match update.table {
            "destinations" => {
                let id = parsed(update.key)?;
                let tenant = self.store.read(|rows| rows.tenant_of(id));
                let tenant = tenant.unwrap_or(DEFAULT_TENANT);
                let before = self.store.destination(tenant, id).await;
                let change = destination_change(update, before.map_err(refused)?.limits)?;
                let changed = self.store.change_destination(tenant, id, &change);
                changed.await.map(drop).map_err(refused)
            }
            "tiers" => {
                let mut limits = self.store.tier(update.key).ok_or("no such tier")?;
                for (column, value) in &update.columns {
                    set_limit(&mut limits, "tiers", column, value)?;
                }
                self.store.change_tier(update.key, limits).map_err(refused)
            }
            "tenants" => {
                let tenant = parsed(update.key)?;
                match update.columns[..] {
                    [("tier", tier)] => {
                        let changed = self.store.change_tenant_tier(tenant, text(tier));
                        changed.map_err(refused)
                    }
                    [("max_in_flight", most)] => {
                        self.store.bound_tenant(tenant, most.parse().ok());
                        Ok(())
                    }
                    _ => Err(format!("cannot set {:?}", update.columns)),
                }
            }
            "health" if update.columns == [("held_until", "held_since")] => {
                self.store.end_hold(parsed(update.key)?);
                Ok(())
            }
            table => Err(format!("no such table: {table}")),
        }
    }
}

#[async_trait]
impl Backdoor for Shell {
    async fn sql(&self, statement: &str) -> Result<(), String> {
        if let Some(values) = statement.strip_prefix(INSERT_TENANT) {
            let [id, _, tier] = values.split(", ").collect::<Vec<_>>()[..] else {
                return Err(format!("syntax error: {statement}"));
            };
            let id = parsed(id)?;
            self.store.add_tenant(id, text(tier.trim_end_matches(')')));
            return Ok(());
        }
        if let Some(answer) = self.of_operations(statement) {
            return answer;
        }
        if statement.starts_with("delete from attempts") {
            return self.delete(statement);
        }
        let update = Update::parse(statement);
        let update = update.ok_or_else(|| format!("syntax error: {statement}"))?;
        self.run(&update).await
    }

    async fn pass_until(&self, at: Timestamp) {
        let now = self.store.fleet().await.map(|fleet| fleet.now);
        let now = now.expect("the model never fails");
        tokio::time::advance(at.since(now)).await;
    }
}

impl Shell {
    /// News that are written by hand, and health that is given or taken.
    fn of_operations(&self, statement: &str) -> Option<Result<(), String>> {
        let texts: Vec<&str> = statement.split('\'').skip(1).step_by(2).collect();
        let run = || -> Result<(), String> {
            match texts[..] {
                [event_type, about, tenant, details, _]
                    if statement.starts_with("insert into operational_events") =>
                {
                    let of = (parsed(about)?, parsed(tenant)?);
                    self.store.raise(of, event_type, details);
                }
                [to, from] if statement.starts_with("insert into health") => {
                    self.store.copy_health(Some(parsed(from)?), parsed(to)?);
                }
                [of] if statement.starts_with("delete from health") => {
                    self.store.copy_health(None, parsed(of)?);
                }
                _ => return Err(format!("syntax error: {statement}")),
            }
            Ok(())
        };
        let known = [
            "insert into operational_events",
            "insert into health",
            "delete from health",
        ];
        (known.iter().any(|words| statement.starts_with(words))).then(run)
    }

    /// `delete from attempts where id in (select … destination_id = 'ID' … limit N)`
    fn delete(&self, statement: &str) -> Result<(), String> {
        let syntax = || format!("syntax error: {statement}");
        let (_, rest) = statement
            .split_once("destination_id = ")
            .ok_or_else(syntax)?;
        let id = parsed(rest.split_whitespace().next().ok_or_else(syntax)?)?;
        let (_, rest) = rest.split_once("limit ").ok_or_else(syntax)?;
        let count = rest
            .trim_matches(|c: char| !c.is_ascii_digit())
            .parse::<usize>();
        let count = count.map_err(|error| format!("{error}: {statement}"))?;
        self.store.delete_attempts(id, count);
        Ok(())
    }
}

/// One statement.
struct Update<'a> {
    table: &'a str,
    columns: Vec<(&'a str, &'a str)>,
    key: &'a str,
}

impl<'a> Update<'a> {
    fn parse(statement: &'a str) -> Option<Self> {
        let (table, rest) = statement.strip_prefix("update ")?.split_once(" set ")?;
        let (columns, key) = rest.split_once(" where ")?;
        let columns = columns.split(", ").map(|column| column.split_once(" = "));
        Some(Self {
            table,
            columns: columns.collect::<Option<_>>()?,
            key: text(key.split_once(" = ")?.1),
        })
    }
}

fn text(literal: &str) -> &str {
    literal.trim_matches('\'')
}

fn parsed<T: FromStr>(literal: &str) -> Result<T, String> {
    let refused = |_| format!("cannot read {literal}");
    text(literal).parse().map_err(refused)
}

/// The name of the constraint that refuses a column.
fn constraint(table: &str, column: &str) -> String {
    format!("CHECK constraint failed: {table}_check_{column}")
}

fn destination_change(
    update: &Update<'_>,
    before: LimitSettings,
) -> Result<DestinationChange, String> {
    let mut change = DestinationChange::default();
    let mut limits = before;
    for (column, value) in &update.columns {
        match *column {
            "name" => change.name = Some(text(value).to_owned()),
            "url" => change.url = Some(text(value).to_owned()),
            "state" => {
                let refused = |_| constraint(update.table, column);
                change.state = Some(text(value).parse().map_err(refused)?);
            }
            _ => set_limit(&mut limits, update.table, column, value)?,
        }
    }
    change.limits = Some(limits);
    Ok(change)
}

fn set_limit(
    limits: &mut LimitSettings,
    table: &str,
    column: &str,
    value: &str,
) -> Result<(), String> {
    fn word<T: FromStr>(value: &str) -> Option<Option<T>> {
        match value {
            "null" => Some(None),
            value => text(value).parse().ok().map(Some),
        }
    }
    let refused = || constraint(table, column);
    let number = || word(value).ok_or_else(refused);
    match column {
        "limit_per_second" => limits.per_second = number()?,
        "limit_per_minute" => limits.per_minute = number()?,
        "limit_per_hour" => limits.per_hour = number()?,
        "limit_per_day" => limits.per_day = number()?,
        "burst" => limits.burst = number()?,
        "max_in_flight" => limits.max_in_flight = number()?,
        "shape" => limits.shape = word(value).ok_or_else(refused)?,
        "unlimited" => limits.unlimited = value.parse().ok().ok_or_else(refused)?,
        "safety_margin" => limits.safety_margin = value.parse().ok().ok_or_else(refused)?,
        _ => return Err(format!("no such column: {column}")),
    }
    Ok(())
}
