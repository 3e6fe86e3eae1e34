//! The page of commands is the command line's: each command once, in its order
//! and its words, with an example that it takes.

use clap::{ArgMatches, Command, CommandFactory};
use server::cli::Cli;

use crate::book::{blocks, document};
use crate::shown;

/// A command, as its section shows it.
#[derive(Debug, PartialEq, Eq)]
struct Section {
    /// Its words, without the program's name.
    words: Vec<String>,
    heading: String,
    about: String,
    is_group: bool,
}

fn sections(command: &Command, before: &[String]) -> Vec<Section> {
    let mut all = Vec::new();
    for inner in command.get_subcommands() {
        let words = [before, &[inner.get_name().to_owned()]].concat();
        let about = inner.get_about().expect("it says what it does").to_string();
        let ends = about.ends_with(['?', '!', '.']);
        all.push(Section {
            heading: format!(
                "{} paceline {}",
                "#".repeat(words.len() + 1),
                words.join(" ")
            ),
            about: if ends { about } else { format!("{about}.") },
            is_group: inner.has_subcommands(),
            words: words.clone(),
        });
        all.extend(sections(inner, &words));
    }
    all
}

/// The subcommands that were called.
fn called(matches: &ArgMatches) -> Vec<String> {
    let inner = matches.subcommand();
    inner.map_or_else(Vec::new, |(name, matches)| {
        [vec![name.to_owned()], called(matches)].concat()
    })
}

#[test]
fn the_page_of_commands_is_the_command_line() {
    let mut rest = document("cli.md");
    let sections = sections(&Cli::command(), &[]);
    assert!(sections.len() > 50, "the commands were not found");
    for (at, section) in sections.iter().enumerate() {
        let begins = format!("\n{}\n\n{}\n", section.heading, section.about);
        let (before, after) = rest
            .split_once(&begins)
            .unwrap_or_else(|| panic!("docs/cli.md lacks, after the command before it:\n{begins}"));
        assert!(
            at == 0 || !before.contains("\n#"),
            "docs/cli.md has too much before {begins}: {before}"
        );
        rest = after;
        let (body, _) = rest.split_once("\n#").unwrap_or((rest, ""));
        if section.is_group {
            assert!(
                blocks(body, "sh").is_empty(),
                "{}: a group",
                section.heading
            );
            continue;
        }
        let examples = shown(
            &blocks(body, "sh").iter().fold(String::new(), |all, block| {
                format!("{all}```sh\n{block}```\n")
            }),
        );
        assert_eq!(examples.len(), 1, "{}: one example", section.heading);
        let matches = Cli::command().try_get_matches_from(&examples[0]);
        let matches = matches.unwrap_or_else(|error| panic!("{}: {error}", section.heading));
        assert_eq!(called(&matches), section.words, "another command's example");
    }
    assert!(!rest.contains("\n#"), "docs/cli.md has more: {rest}");
}
