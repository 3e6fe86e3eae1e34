//! How long things are kept once they are over.

use std::time::Duration;

use clap::Args;
use domain::retention::{Kept, Retention};

/// The word for no age.
const FOREVER: &str = "forever";

/// How long what is over is kept. The same in every process that schedules.
#[derive(Debug, Clone, Copy, Args)]
pub struct KeepConfig {
    /// How long events are kept with their payloads: at least 25h, or
    /// `forever`. What is still to be delivered, or can be replayed, stays.
    #[arg(long, env = "PACELINE_KEEP_PAYLOADS", value_name = "DURATION")]
    #[arg(default_value = "7days", value_parser = payloads)]
    pub keep_payloads: Kept,

    /// How long attempts are kept after they ended, and the history of limits:
    /// at least 3days, or `forever`.
    #[arg(long, env = "PACELINE_KEEP_LEDGER", value_name = "DURATION")]
    #[arg(default_value = "30days", value_parser = ledger)]
    pub keep_ledger: Kept,

    /// How long dead letters can be replayed: at least 1h, or `forever`.
    #[arg(long, env = "PACELINE_KEEP_DEAD_LETTERS", value_name = "DURATION")]
    #[arg(default_value = "30days", value_parser = dead_letters)]
    pub keep_dead_letters: Kept,
}

impl KeepConfig {
    /// The three ages.
    #[must_use]
    pub const fn retention(&self) -> Retention {
        Retention {
            payloads: self.keep_payloads,
            ledger: self.keep_ledger,
            dead_letters: self.keep_dead_letters,
        }
    }
}

fn payloads(text: &str) -> Result<Kept, String> {
    let payloads = kept(text)?;
    valid(
        payloads,
        Retention {
            payloads,
            ..Retention::FOREVER
        },
    )
}

fn ledger(text: &str) -> Result<Kept, String> {
    let ledger = kept(text)?;
    valid(
        ledger,
        Retention {
            ledger,
            ..Retention::FOREVER
        },
    )
}

fn dead_letters(text: &str) -> Result<Kept, String> {
    let dead_letters = kept(text)?;
    valid(
        dead_letters,
        Retention {
            dead_letters,
            ..Retention::FOREVER
        },
    )
}

fn kept(text: &str) -> Result<Kept, String> {
    if text == FOREVER {
        return Ok(Kept::Forever);
    }
    let age: Duration = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    Ok(Kept::For(age))
}

fn valid(kept: Kept, retention: Retention) -> Result<Kept, String> {
    let valid = retention.validate();
    valid.map_err(|refused| refused.to_string())?;
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use domain::retention::Retention;

    use super::*;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        keep: KeepConfig,
    }

    fn parse(arguments: &[&str]) -> Result<Retention, String> {
        let all = ["paceline"].iter().chain(arguments);
        let parsed = Cli::try_parse_from(all).map_err(|error| error.to_string());
        parsed.map(|cli| cli.keep.retention())
    }

    #[test]
    fn the_defaults_are_the_domains() {
        assert_eq!(parse(&[]), Ok(Retention::default()));
    }

    #[test]
    fn an_age_is_a_duration_or_for_ever() {
        let days = |days: u64| Kept::For(Duration::from_secs(days * 86_400));
        let parsed = parse(&[
            "--keep-payloads=2days",
            "--keep-ledger=90days",
            "--keep-dead-letters=forever",
        ]);
        let expected = Retention {
            payloads: days(2),
            ledger: days(90),
            dead_letters: Kept::Forever,
        };
        assert_eq!(parsed, Ok(expected));
    }

    #[test]
    fn a_refusal_names_the_flag_and_says_what_is_allowed() {
        let cases = [
            ("--keep-payloads", "24h", "at least 25 hours"),
            ("--keep-ledger", "0s", "at least 72 hours"),
            ("--keep-dead-letters", "1min", "at least 1 hours"),
            ("--keep-ledger", "200years", "at most a hundred years"),
            ("--keep-ledger", "soon", "expected number"),
        ];
        for (flag, value, problem) in cases {
            let refused = parse(&[&format!("{flag}={value}")]);
            let refused = refused.expect_err("it is refused");
            assert!(refused.contains(flag), "{refused}");
            assert!(refused.contains(problem), "{refused}");
        }
    }
}
