//! The documents are true: the README's tour and the steps of whoever operates an
//! installation are taken as they are written, and every command, flag, variable and
//! default in the documents is one of the command line's.
//!
//! Needs the servers that `scripts/test` starts (PACELINE_TEST_DATABASE_URL and the others),
//! and starts a Postgres of its own.
#![expect(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

#[path = "../support/ask.rs"]
mod ask;
mod book;
mod customer;
mod installation;
mod operations;
#[path = "../support/private.rs"]
#[expect(dead_code, reason = "here no server is killed")]
mod private;
mod reference;
mod runbook;
mod scaling;
mod stage;
mod tour;

use std::collections::{BTreeMap, BTreeSet};

use clap::CommandFactory;
use clap::error::ErrorKind;
use server::cli::{Cli, parse};
use server::config::unknown;

use book::{DOCUMENTS, README, blocks, commands, inline, words};

const ID: &str = "0192f3c4-0000-7000-8000-000000000001";

/// What ends a command's own words.
const OPERATORS: [&str; 5] = ["|", ">", ">>", "&&", "||"];

/// Command lines of `paceline` in a document, as words.
fn shown(text: &str) -> Vec<Vec<String>> {
    let variables = [
        "ID",
        "ADDRESS",
        "SECRET_ID",
        "EVENT",
        "REPLAY",
        "REQUEST",
        "PWD",
        "PATH",
        "PACELINE_DATABASE_URL",
        "ADMIN_URL",
        "SHARD_URL",
    ];
    let variables = variables.map(|name| (name.to_owned(), ID.to_owned()));
    let variables = BTreeMap::from(variables);
    let fenced = blocks(text, "sh");
    let fenced = fenced.iter().flat_map(|block| commands(block));
    let all = fenced.chain(inline(text));
    let named = all.filter(|line| line.contains("paceline ") || line.contains("cargo run"));
    let split = named.filter_map(|line| {
        // Of `NAME=$(… | jq …)` what comes before the pipe.
        let asking = line
            .split_once("=$(")
            .and_then(|(_, rest)| rest.split_once(" | "));
        let mut words = words(asking.map_or(&line, |(asking, _)| asking), &variables);
        let ends = words.iter().position(|word| OPERATORS.contains(&&**word));
        words.truncate(ends.unwrap_or(words.len()));
        // What cargo runs, or something in a pod.
        if let Some(dashes) = words.iter().position(|word| word == "--") {
            let is_built = words[..dashes].iter().any(|word| word == "cargo");
            let ours = is_built.then(|| "paceline".to_owned());
            words.splice(..=dashes, ours);
        }
        while words.first().is_some_and(|word| word.contains('=')) {
            words.remove(0);
        }
        (words.first()? == "paceline").then_some(words)
    });
    split.collect()
}

#[test]
fn every_command_shown_is_one_that_the_program_takes() {
    let mut seen = BTreeSet::new();
    for (document, text) in DOCUMENTS {
        for mut words in shown(text) {
            for word in &mut words {
                if word == "ROLE" {
                    "worker".clone_into(word);
                }
            }
            seen.extend(words.get(1).cloned());
            // A group by itself, or a question for help.
            let known = |kind| {
                kind == ErrorKind::DisplayHelp
                    || kind == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
            };
            if let Err(error) = parse(&words) {
                assert!(known(error.kind()), "{document}: {words:?}: {error}");
            }
        }
    }
    let command = Cli::command();
    let all = command.get_subcommands().map(clap::Command::get_name);
    let all: BTreeSet<String> = all.map(str::to_owned).collect();
    assert_eq!(seen, all, "each command is shown somewhere");
}

#[test]
fn every_variable_and_flag_named_is_a_setting() {
    let command = Cli::command();
    let settings = unknown::arguments(&command);
    let flags = flags(&command);
    for (document, text) in DOCUMENTS {
        for (at, prefix) in text.match_indices("PACELINE_") {
            let rest = text[at + prefix.len()..].chars();
            let rest: String = rest
                .take_while(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || *c == '_')
                .collect();
            let name = format!("{prefix}{rest}");
            let known = settings.iter().any(|setting| setting.variable == name);
            let free = rest.is_empty() || rest.starts_with("TEST_");
            assert!(known || free, "{document}: {name}");
        }
        for code in inline(text) {
            let flag = code
                .strip_prefix("--")
                .and_then(|flag| flag.split(' ').next());
            let known = flag.is_none_or(|flag| flags.contains(flag));
            assert!(known, "{document}: {code}");
        }
    }
}

fn flags(command: &clap::Command) -> BTreeSet<String> {
    let own = command.get_arguments().filter_map(clap::Arg::get_long);
    let own = own.map(str::to_owned);
    let of_others = command.get_subcommands().flat_map(flags);
    own.chain(of_others).collect()
}

/// Flag, variable and default of every setting.
fn defaults(command: &clap::Command) -> BTreeMap<String, (String, String)> {
    let own = command.get_arguments().filter_map(|argument| {
        let variable = argument.get_env()?.to_str()?.to_owned();
        let flag = format!("--{}", argument.get_long()?);
        let values = argument.get_default_values().iter();
        let values: Vec<_> = values.filter_map(|value| value.to_str()).collect();
        Some((variable, (flag, values.join(" "))))
    });
    let of_others = command.get_subcommands().flat_map(defaults);
    own.chain(of_others).collect()
}

#[test]
fn the_table_of_settings_is_the_command_lines() {
    let (_, table) = README.split_once("## Configuration").unwrap();
    let (table, _) = table.split_once("\n## ").unwrap();
    let rows = table.lines().filter(|line| line.starts_with("| `--"));
    let rows = rows.map(|line| {
        let cells: Vec<_> = line
            .split('|')
            .map(|cell| cell.trim().trim_matches('`').to_owned())
            .collect();
        let default = match cells[3].as_str() {
            "none" => String::new(),
            given => given.to_owned(),
        };
        (cells[2].clone(), (cells[1].clone(), default))
    });
    let rows: BTreeMap<_, _> = rows.collect();
    assert_eq!(rows, defaults(&Cli::command()));
}
