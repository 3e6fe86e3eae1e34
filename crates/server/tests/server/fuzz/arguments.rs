//! Target `arguments`: a command line, one argument a line.

use domain::time::Timestamp;
use fuzzing::{Verdict, ensure};
use serde_json::Value;
use server::cli::{self, Cli, Command};
use server::commands::{audit, destination};

use crate::world::NOON;

#[test]
fn arguments() -> fuzzing::Outcome {
    fuzzing::run(super::CRATE, "arguments", 300, judge)
}

fn judge(input: &[u8]) -> Verdict {
    let Ok(text) = std::str::from_utf8(input) else {
        return Ok("not UTF-8".to_owned());
    };
    let arguments: Vec<&str> = std::iter::once("paceline").chain(text.lines()).collect();
    match cli::parse(&arguments) {
        Ok(Cli {
            command: Command::Audit(args),
            ..
        }) => audit(&args),
        Ok(Cli {
            command: Command::Destination(destination::Command::Create { settings, .. }),
            ..
        }) => limits(&arguments, &settings.json()),
        Ok(_) => Ok("another command".to_owned()),
        Err(refused) => {
            ensure!(matches!(refused.exit_code(), 0 | 2));
            ensure!(!refused.to_string().is_empty());
            Ok(format!("{:?}", refused.kind()))
        }
    }
}

/// Any time that is taken can be computed with.
fn audit(args: &audit::Args) -> Verdict {
    let resolved = |when: Option<audit::When>| when.map(|when| when.resolve(NOON));
    let (since, until) = (resolved(args.since), resolved(args.until));
    for when in [args.since, args.until] {
        if let Some(audit::When::Ago(ago)) = when {
            let latest = Timestamp::from_micros(NOON.as_micros());
            ensure!(
                resolved(when).is_some_and(|at| at <= latest),
                "{ago:?} ago is to come"
            );
        }
    }
    Ok(format!("audit {:?}", since.partial_cmp(&until)))
}

/// What goes to the API is what was written.
fn limits(arguments: &[&str], json: &serde_json::Map<String, Value>) -> Verdict {
    let limits = json.get("limits").and_then(Value::as_object);
    for (flag, field) in [("--per-second=", "per_second"), ("--per-day=", "per_day")] {
        let sent = limits.and_then(|limits| limits.get(field));
        let written = arguments.iter().find_map(|text| text.strip_prefix(flag));
        match (written, sent) {
            (None, None) => {}
            (Some("none"), Some(Value::Null)) => {}
            (Some(written), Some(Value::Number(sent))) => {
                let digits = written.trim_start_matches('+').trim_start_matches('0');
                let digits = if digits.is_empty() { "0" } else { digits };
                ensure!(sent.to_string() == digits, "{written} is sent as {sent}");
            }
            // Written after `--`, or as another flag's value.
            (Some(_), None) => {}
            other => fuzzing::bail!("{field}: {other:?}"),
        }
    }
    let fields: Vec<&str> = json.keys().map(String::as_str).collect();
    Ok(format!("create {}", fields.join(" ")))
}
