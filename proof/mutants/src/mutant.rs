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
