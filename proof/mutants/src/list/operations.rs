//! What operators must know.

use crate::mutant::Change::Rust;
use crate::mutant::{Mutant, postgres, sqlite_contract};

pub(super) const MUTANTS: [Mutant; 5] = [
    Mutant {
        name: "news-of-news-go-round",
        wrong: "News about an operational destination go to all that are told, itself too.",
        file: "crates/domain/src/operations.rs",
        change: Rust {
            right: "before(one) && one.wants(event)",
            wrong: "one.wants(event)",
        },
        killer: sqlite_contract("operations::relaying::news_of_one_that_is_told_do_not_come_back"),
    },
    Mutant {
        name: "sqlite-news-are-not-marked",
        wrong: "The relay does not mark what it has relayed, and takes it again for ever.",
        file: "crates/adapters/src/sqlite/operations.rs",
        change: Rust {
            right: "execute(tx, MARK, (row.id, now.as_micros()))?;",
            wrong: "",
        },
        killer: sqlite_contract(
            "operations::relaying::news_become_one_event_for_each_that_is_told",
        ),
    },
    Mutant {
        name: "sqlite-watch-forgets-what-it-told",
        wrong: "The watch tells of what it finds and does not remember that it did: it tells of \
            it at every look.",
        file: "crates/adapters/src/sqlite/watch.rs",
        change: Rust {
            right: "passed.write(tx, rules, now)?;",
            wrong: "",
        },
        killer: sqlite_contract(
            "operations::watching::a_high_backlog_is_told_of_once_and_ends_at_half",
        ),
    },
    Mutant {
        name: "postgres-news-outside-the-transaction",
        wrong: "The relay accepts its events in a transaction of their own: one that stops before \
            it marks the news has delivered them all the same.",
        file: "crates/adapters/src/postgres/operations.rs",
        change: Rust {
            right: "ingest::accept_within(&mut transaction, &events).await?",
            wrong: "ingest::accept_events(pool, &events).await?",
        },
        killer: postgres(
            "contract::operations::stopped::\
            a_relay_that_stops_between_its_steps_has_done_nothing",
        ),
    },
    Mutant {
        name: "postgres-watch-notes-outside-the-transaction",
        wrong: "The watch writes down what it found in a transaction of its own: one that stops \
            before it remembers that tells of it again.",
        file: "crates/adapters/src/postgres/watch.rs",
        change: Rust {
            right: "note(&mut transaction, &news).await?;",
            wrong: "note(&mut *pool.acquire().await?, &news).await?;",
        },
        killer: postgres(
            "contract::operations::stopped::a_watch_that_stops_between_its_steps_has_told_nothing",
        ),
    },
];
