//! Asks before something is done that cannot be taken back.
//!
//! On a terminal it says what it will do, and asks. Elsewhere nobody could answer, so
//! `--yes` has to be said: a script that waits for ever is worse than one that stops.

use std::io::{self, IsTerminal, Write};

use anyhow::{Context, bail};
use clap::Args;

use crate::config::ConfigError;

/// Whether to ask.
#[derive(Debug, Clone, Copy, Args)]
pub struct Sure {
    /// Do it without a question; needed where there is no terminal to answer at.
    #[arg(long, short = 'y')]
    pub yes: bool,
}

impl Sure {
    /// Refuses what nobody could be asked about: before anything else is done.
    pub(super) fn check(self) -> Result<(), ConfigError> {
        // The question is on standard error, and the answer comes from the input.
        let is_terminal = io::stdin().is_terminal() && io::stderr().is_terminal();
        if self.yes || is_terminal {
            return Ok(());
        }
        Err(ConfigError {
            name: "--yes".to_owned(),
            problem: "this asks before it begins, and there is no terminal to answer at: \
                      say --yes to do it without a question"
                .to_owned(),
        })
    }

    /// Says what it will do, and asks, but where `--yes` was said. Ends with an error
    /// if the answer is anything but yes.
    pub(super) async fn ask(
        self,
        what: impl AsyncFnOnce() -> anyhow::Result<String>,
    ) -> anyhow::Result<()> {
        self.check()?;
        if self.yes {
            return Ok(());
        }
        let what = what().await?;
        let mut out = io::stderr().lock();
        write!(out, "{what}\nGo on? [y/N] ").context("ask")?;
        out.flush().context("ask")?;
        let mut answer = String::new();
        (io::stdin().read_line(&mut answer)).context("read the answer")?;
        match answer.trim().to_ascii_lowercase().as_str() {
            "y" | "yes" => Ok(()),
            _ => bail!("nothing was done"),
        }
    }
}
