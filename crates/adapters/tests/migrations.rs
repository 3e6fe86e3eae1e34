//! The migrations of both dialects are in lock-step: the same files, the same
//! tables, the same columns in the same order. And each object is defined once.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use rusqlite::Connection;

fn folder(dialect: &str) -> PathBuf {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    root.join("../../migrations").join(dialect)
}

fn names(dialect: &str) -> Vec<String> {
    let name =
        |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
    let mut names: Vec<_> = fs::read_dir(folder(dialect)).unwrap().map(name).collect();
    names.sort();
    names
}

/// The columns of every `create table`: the words that begin a line of its
/// first level and are no constraint's.
fn tables(dialect: &str) -> BTreeMap<String, Vec<String>> {
    let mut tables: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for name in names(dialect) {
        let sql = fs::read_to_string(folder(dialect).join(name)).unwrap();
        let mut table: Option<String> = None;
        for line in sql.lines() {
            if let Some(rest) = line.strip_prefix("create table ") {
                table = rest.split_whitespace().next().map(str::to_owned);
            } else if line.starts_with(')') {
                table = None;
            } else if let (Some(table), Some(rest)) = (&table, line.strip_prefix("    ")) {
                let word: String = (rest.chars())
                    .take_while(|one| one.is_ascii_lowercase() || *one == '_')
                    .collect();
                if !["", "constraint", "primary"].contains(&word.as_str()) {
                    tables.entry(table.clone()).or_default().push(word);
                }
            }
        }
    }
    tables
}

#[test]
fn the_dialects_have_the_same_files() {
    let mut postgres = names("postgres");
    // No other program writes an SQLite file, so there is no outbox in it.
    postgres.retain(|name| name != "0009_outbox.sql");
    assert_eq!(names("sqlite"), postgres);
}

/// Whoever looks for a table, a function or a trigger finds the one that holds.
#[test]
fn each_object_is_defined_once() {
    for dialect in ["postgres", "sqlite"] {
        let mut defined: BTreeMap<String, u32> = BTreeMap::new();
        for name in names(dialect) {
            let sql = fs::read_to_string(folder(dialect).join(name)).unwrap();
            assert!(!sql.contains("or replace"), "{dialect}");
            for line in sql.lines().filter(|line| line.starts_with("create ")) {
                let words: Vec<&str> = line.split([' ', '(']).take(4).collect();
                // `create unique index name`, `create table name`.
                let object = match words[1] {
                    "unique" => words[2..].join(" "),
                    _ => words[1..3].join(" "),
                };
                *defined.entry(object).or_default() += 1;
            }
        }
        assert!(defined.len() > 60, "they were not found: {defined:?}");
        defined.retain(|_, times| *times > 1);
        assert!(defined.is_empty(), "{dialect}: {defined:?}");
    }
}

#[test]
fn the_dialects_have_the_same_tables_and_columns() {
    let mut sqlite = tables("sqlite");
    let mut postgres = tables("postgres");
    // Parts of one table on Postgres, with all of its columns. Here each has what it uses.
    let mut attempts = postgres.remove("attempts").unwrap();
    assert!(
        attempts.len() > 20,
        "the columns were not found: {attempts:?}"
    );
    let parts = ["deliveries", "ledger"].map(|part| sqlite.remove(part).unwrap());
    let mut in_parts = parts.concat();
    in_parts.sort_unstable();
    in_parts.dedup();
    attempts.sort_unstable();
    assert_eq!(in_parts, attempts);
    // An SQLite file has no outbox, and no days: events know none, none is left out. It finds
    // what is owed of an event by an index, and not by the event.
    (postgres.get_mut("events").unwrap())
        .retain(|column| !["day", "delivery", "deliveries"].contains(&column.as_str()));
    for table in [
        "outbox",
        "outbox_lanes",
        "outbox_rejected",
        "outbox_rejected_tallies",
        "attempts_horizon",
        "events_timeless",
        // Of its parts no more than how they are kept is said.
        "deliveries",
        "ledger",
    ] {
        assert!(postgres.remove(table).is_some(), "{table}");
    }
    assert_eq!(sqlite, postgres);
}

/// A shell reads `attempts` and `starts` of either; what nobody stores is in the view alone.
#[test]
fn the_views_of_sqlite_have_the_columns_of_the_table_on_postgres() {
    let connection = Connection::open_in_memory().unwrap();
    for name in names("sqlite") {
        let sql = fs::read_to_string(folder("sqlite").join(name)).unwrap();
        connection.execute_batch(&sql).unwrap();
    }
    let attempts = tables("postgres").remove("attempts").unwrap();
    let mut starts = attempts.clone();
    starts.push("delivery_latency".to_owned());
    for (view, expected) in [("attempts", attempts), ("starts", starts)] {
        let columns = format!("select * from {view}");
        let columns = connection.prepare(&columns).unwrap();
        assert_eq!(columns.column_names(), expected, "{view}");
    }
}
