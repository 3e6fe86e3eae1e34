//! Who migrates and runs: any plain role, whatever it is called and whether it owns
//! the database or was granted what it needs.

use adapters::postgres::{PostgresOptions, PostgresStore};
use contract::store::World;
use sqlx::{Connection, PgConnection};

use crate::contract::world_at;
use crate::database::{Database, run};

/// What each manifest and `compose.yaml` name, and most people would; and another.
const ROLES: [&str; 2] = ["paceline", "somebody_else"];

/// How the role comes by its rights.
#[derive(Clone, Copy, Debug)]
enum Rights {
    Owns,
    Granted,
}

/// `role`, which is made if it is not there, is no superuser, and may be taken on by us.
async fn make(admin: &mut PgConnection, role: &str) {
    let make = format!(
        "do $$ begin create role {role} nologin; exception when duplicate_object then null; end $$;
        do $$ begin
            if current_user <> '{role}' then execute format('grant {role} to %I', current_user); end if;
        end $$"
    );
    run(admin, make).await;
    let is_superuser = format!("select rolsuper from pg_roles where rolname = '{role}'");
    let is_superuser: bool = sqlx::query_scalar(sqlx::AssertSqlSafe(is_superuser))
        .fetch_one(admin)
        .await
        .unwrap();
    assert!(!is_superuser, "{role} is a superuser");
}

/// An empty database for `role`, and its URL as this role.
async fn database_for(role: &str, rights: Rights) -> (Database, String) {
    let database = Database::empty().await;
    let mut admin = database.user().await;
    make(&mut admin, role).await;
    let name: String = sqlx::query_scalar("select current_database()")
        .fetch_one(&mut admin)
        .await
        .unwrap();
    let give = match rights {
        Rights::Owns => format!("alter database {name} owner to {role}"),
        Rights::Granted => format!(
            "grant create on database {name} to {role}; grant create, usage on schema public to {role}"
        ),
    };
    run(&mut admin, give).await;
    let url = format!("{}?options=-crole%3D{role}", database.url);
    (database, url)
}

async fn store_at(url: &str) -> PostgresStore {
    let options = PostgresOptions {
        url: url.to_owned(),
        max_connections: 4,
    };
    PostgresStore::connect(options).await.unwrap()
}

#[tokio::test]
async fn any_plain_role_installs_upgrades_and_runs() {
    for role in ROLES {
        for rights in [Rights::Owns, Rights::Granted] {
            let (_database, url) = database_for(role, rights).await;
            let store = store_at(&url).await;
            store
                .migrate()
                .await
                .unwrap_or_else(|error| panic!("{role}, {rights:?}: {error}"));
            // An upgrade, and a second `kubectl apply`, migrate what is there.
            store_at(&url).await.migrate().await.unwrap();
            let mut user = PgConnection::connect(&url).await.unwrap();
            assert_eq!(
                schemas_of_tables(&mut user).await,
                ["public"],
                "{role}, {rights:?}"
            );
            // The ids of the contract's events are of that day.
            let day = "select ensure_day('events', '2037-07-04')";
            run(&mut user, day.to_owned()).await;
            delivers(&world_at(&url, store)).await;
            let tenant = "insert into paceline.outbox (event_id, tenant_id, event_type, content_type, payload)
                select gen_random_uuid(), id, 'x', 'text/plain', 'hello' from tenants";
            run(&mut user, tenant.to_owned()).await;
        }
    }
}

/// Where our tables are.
async fn schemas_of_tables(user: &mut PgConnection) -> Vec<String> {
    sqlx::query_scalar(
        "select distinct schemaname::text from pg_tables
        where schemaname not in ('pg_catalog', 'information_schema')",
    )
    .fetch_all(user)
    .await
    .unwrap()
}

/// Accepted, admitted, claimed, recorded, and a limit changed by the user's own SQL.
async fn delivers(world: &World) {
    let destination = world.destination().per_second(1).create().await;
    world.accept(destination, 3).await;
    let worker = world.worker().await;
    let permits = world.admit(destination).await;
    world.start(worker, &permits[..1]).await;
    world.finish(worker, &permits[..1]).await;
    world
        .sql(&format!(
            "update destinations set limit_per_second = 100 where id = '{destination}'"
        ))
        .await;
    assert_eq!(world.starts(destination).await.len(), 1);
}

/// It is refused, with what to do.
async fn migrating_says(url: &str, what_to_do: &str) {
    let refused = store_at(url).await.migrate().await.unwrap_err().to_string();
    assert!(refused.contains(what_to_do), "{refused}");
}

/// What an earlier version left behind as the role `paceline`.
#[tokio::test]
async fn an_installation_that_is_split_over_two_schemas_is_told_what_to_do() {
    let (_database, url) = database_for("paceline", Rights::Owns).await;
    let mut user = PgConnection::connect(&url).await.unwrap();
    let split = "create table public.tiers (); create schema paceline;
        create table paceline.smart_limits ()";
    run(&mut user, split.to_owned()).await;
    migrating_says(&url, "drop schema paceline cascade").await;
    // As it says.
    let over = "drop schema paceline cascade; drop schema public cascade; create schema public";
    run(&mut user, over.to_owned()).await;
    store_at(&url).await.migrate().await.unwrap();
}

/// Since Postgres 15 nobody may create in `public` unasked.
#[tokio::test]
async fn a_role_without_rights_is_told_which() {
    let database = Database::empty().await;
    let mut admin = database.user().await;
    make(&mut admin, "somebody_else").await;
    run(
        &mut admin,
        "revoke create on schema public from public".to_owned(),
    )
    .await;
    let url = format!("{}?options=-crole%3Dsomebody_else", database.url);
    migrating_says(&url, "grant create, usage on schema public").await;
}
