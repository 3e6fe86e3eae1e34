//! The store on a real Postgres: the contract that every store keeps, and what
//! is Postgres's own: locks, snapshots, triggers and plans.
//!
//! Needs `PACELINE_TEST_DATABASE_URL`, with the right to create databases.
#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking, its helpers too"
)]

#[path = "postgres_store/admission.rs"]
mod admission;
#[path = "recorded/answers.rs"]
mod answers;
#[path = "postgres_store/backlog.rs"]
mod backlog;
#[path = "postgres_store/changes.rs"]
mod changes;
#[path = "postgres_store/coarse.rs"]
mod coarse;
#[path = "postgres_store/connect.rs"]
mod connect;
#[path = "postgres_store/contract.rs"]
mod contract;
#[path = "postgres_store/counting.rs"]
mod counting;
#[path = "postgres_store/database.rs"]
mod database;
#[path = "postgres_store/days.rs"]
mod days;
#[path = "postgres_store/days_cost.rs"]
mod days_cost;
#[path = "postgres_store/days_detach.rs"]
mod days_detach;
#[path = "postgres_store/days_outbox.rs"]
mod days_outbox;
#[path = "postgres_store/durability.rs"]
mod durability;
#[path = "postgres_store/entries.rs"]
mod entries;
#[path = "postgres_store/held.rs"]
mod held;
#[path = "postgres_store/horizon.rs"]
mod horizon;
#[path = "postgres_store/ingest.rs"]
mod ingest;
#[path = "notifier/killed.rs"]
mod killed;
#[path = "postgres_store/late_commits.rs"]
mod late_commits;
#[path = "postgres_store/limit_requests.rs"]
mod limit_requests;
#[path = "postgres_store/limits.rs"]
mod limits;
#[path = "postgres_store/migrating.rs"]
mod migrating;
#[path = "postgres_store/notifier.rs"]
mod notifier;
#[path = "postgres_store/outbox.rs"]
mod outbox;
#[path = "postgres_store/pages.rs"]
mod pages;
#[path = "postgres_store/past.rs"]
mod past;
#[path = "postgres_store/plans.rs"]
mod plans;
#[path = "postgres_store/ratios.rs"]
mod ratios;
#[path = "postgres_store/reap.rs"]
mod reap;
#[path = "postgres_store/retention.rs"]
mod retention;
#[path = "postgres_store/roles.rs"]
mod roles;
#[path = "postgres_store/row.rs"]
mod row;
#[path = "support/scratch.rs"]
mod scratch;
#[path = "postgres_store/smart.rs"]
mod smart;
#[path = "postgres_store/starts.rs"]
mod starts;
#[path = "postgres_store/starts_cost.rs"]
mod starts_cost;
#[path = "postgres_store/traces.rs"]
mod traces;
#[path = "postgres_store/verdicts.rs"]
mod verdicts;
#[path = "postgres_store/worker_role.rs"]
mod worker_role;
#[path = "postgres_store/written.rs"]
mod written;
