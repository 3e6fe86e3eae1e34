//! A misspelt variable is refused, not ignored: nobody notices a limit that
//! was never set.

use clap::Command;

use super::ConfigError;

const PREFIX: &str = "PACELINE_";

/// For tests, which name their servers by variables of their own.
const EXEMPT: &str = "PACELINE_TEST_";

/// A flag and the variable that stands for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Argument {
    /// Without the dashes.
    pub flag: String,
    /// `PACELINE_…`.
    pub variable: String,
}

/// Every flag with a variable, of the command and all commands in it.
#[must_use]
pub fn arguments(command: &Command) -> Vec<Argument> {
    let own = command.get_arguments().filter_map(|argument| {
        Some(Argument {
            flag: argument.get_long()?.to_owned(),
            variable: argument.get_env()?.to_str()?.to_owned(),
        })
    });
    own.chain(command.get_subcommands().flat_map(arguments))
        .collect()
}

/// Refuses the first `PACELINE_…` that no command knows. A variable of another
/// role is fine: processes of all roles often share one environment.
pub fn refuse_unknown(
    command: &Command,
    environment: impl IntoIterator<Item = String>,
) -> Result<(), ConfigError> {
    let known: Vec<String> = arguments(command)
        .into_iter()
        .map(|argument| argument.variable)
        .collect();
    let stranger = environment
        .into_iter()
        .filter(|name| name.starts_with(PREFIX) && !name.starts_with(EXEMPT))
        .find(|name| !known.contains(name));
    let Some(name) = stranger else { return Ok(()) };
    let nearest = known
        .iter()
        .map(|candidate| (distance(&name, candidate), candidate))
        .min();
    let problem = match nearest {
        Some((distance, candidate)) if distance <= 4 => {
            format!("there is no such variable; did you mean {candidate}?")
        }
        _ => "there is no such variable; `paceline help COMMAND` lists them".to_owned(),
    };
    Err(ConfigError { name, problem })
}

/// How many letters have to be changed, added or removed.
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, from) in left.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in right.iter().enumerate() {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[right.len()]
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::Cli;

    fn refused(name: &str) -> Option<String> {
        refuse_unknown(&Cli::command(), [name.to_owned()])
            .err()
            .map(|error| error.to_string())
    }

    #[test]
    fn a_misspelt_variable_is_refused_with_what_was_meant() {
        assert_eq!(
            refused("PACELINE_DATABSE_URL").as_deref(),
            Some(
                "PACELINE_DATABSE_URL: there is no such variable; \
                 did you mean PACELINE_DATABASE_URL?"
            )
        );
        assert!(refused("PACELINE_SOMETHING_ELSE_ENTIRELY").is_some());
    }

    #[test]
    fn known_and_foreign_variables_pass() {
        for name in [
            "PACELINE_LOG",
            "PACELINE_URL",
            "PACELINE_TEST_POSTGRES_URL",
            "HOME",
        ] {
            assert_eq!(refused(name), None);
        }
    }

    #[test]
    fn every_variable_is_named_after_its_flag() {
        for argument in arguments(&Cli::command()) {
            // OpenTelemetry and Svix have names of their own for their settings.
            if ["OTEL_", "SVIX_"]
                .iter()
                .any(|begin| argument.variable.starts_with(begin))
            {
                continue;
            }
            let expected = format!("{PREFIX}{}", argument.flag.to_uppercase().replace('-', "_"));
            assert_eq!(argument.variable, expected);
        }
    }
}
