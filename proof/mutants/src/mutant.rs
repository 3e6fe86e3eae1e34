//! What a mutant is.

/// A small wrong version of one place of the shipped code, and the test that
/// must notice it.
#[derive(Debug)]
pub(crate) struct Mutant {
    /// Its name, which switches it on.
    pub(crate) name: &'static str,
    /// What is wrong with it.
    pub(crate) wrong: &'static str,
    /// The shipped file that it changes, from the root of the workspace.
    pub(crate) file: &'static str,
    /// What it changes there.
    pub(crate) change: Change,
    /// The test that fails with it, and passes without.
    pub(crate) killer: Killer,
}

/// A change of one place. What is sought is found exactly once in the file, to
/// the letter: otherwise the code has moved on, and the mutant must follow.
#[derive(Debug)]
pub(crate) enum Change {
    /// A whole Rust expression, or whole statements (they end in `;` or `}`
    /// and bind nothing), and the wrong ones.
    Rust {
        right: &'static str,
        wrong: &'static str,
    },
    /// Rust that both versions share in part: what takes its place, in which
    /// `ON` stands for "the mutant is switched on".
    Rewrite {
        right: &'static str,
        with: &'static str,
    },
    /// A piece of a string literal (SQL) or of an included file (SQL, Lua).
    Text {
        right: &'static str,
        wrong: &'static str,
    },
}

impl Change {
    /// The shipped text.
    pub(crate) const fn right(&self) -> &'static str {
        match self {
            Self::Rust { right, .. } | Self::Rewrite { right, .. } | Self::Text { right, .. } => {
                right
            }
        }
    }
}

/// A named test, which runs unmutated too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Killer {
    /// The test program: a file or folder in the `tests` of a package.
    pub(crate) target: &'static str,
    /// The test's path in it.
    pub(crate) test: &'static str,
}

/// `domain`'s properties.
pub(crate) const fn properties(test: &'static str) -> Killer {
    let target = "properties";
    Killer { target, test }
}

/// The engine's loops, on fakes and in virtual time.
pub(crate) const fn loops(test: &'static str) -> Killer {
    let target = "loops";
    Killer { target, test }
}

/// The store's contract on SQLite, whose clock the test moves.
pub(crate) const fn sqlite_contract(test: &'static str) -> Killer {
    let target = "store_contract_sqlite";
    Killer { target, test }
}

/// What is SQLite's own.
pub(crate) const fn sqlite(test: &'static str) -> Killer {
    let target = "sqlite_store";
    Killer { target, test }
}

/// The store's contract on Postgres, and what is Postgres's own.
pub(crate) const fn postgres(test: &'static str) -> Killer {
    let target = "postgres_store";
    Killer { target, test }
}

/// The schedule's contract, in process and on Redis.
pub(crate) const fn schedule(test: &'static str) -> Killer {
    let target = "schedule_contract";
    Killer { target, test }
}

/// What is Redis's own.
pub(crate) const fn redis(test: &'static str) -> Killer {
    let target = "redis_schedule";
    Killer { target, test }
}

/// The queue's contract, in process and on RabbitMQ.
pub(crate) const fn queue(test: &'static str) -> Killer {
    let target = "queue_contract";
    Killer { target, test }
}

/// What is RabbitMQ's own.
pub(crate) const fn rabbitmq(test: &'static str) -> Killer {
    let target = "rabbitmq_queue";
    Killer { target, test }
}
