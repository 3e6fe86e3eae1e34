//! What commands print to standard output.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

use anyhow::Context;
use clap::ValueEnum;
use comfy_table::Table;
use comfy_table::presets::NOTHING;
use serde::Serialize;
use serde_json::{Map, Value};

/// How a command prints what it got.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    Table,
    /// For programs.
    Json,
}

/// Prints one line.
pub fn line(text: &str) -> anyhow::Result<()> {
    writeln!(io::stdout().lock(), "{text}").context("print")
}

/// Prints somebody's bytes as they are; on a terminal, without what it would obey.
pub fn bytes(bytes: &[u8]) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    let printed = match out.is_terminal() {
        true => out.write_all(harmless(bytes).as_bytes()),
        false => out.write_all(bytes),
    };
    printed.and_then(|()| out.flush()).context("print")
}

fn harmless(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let plain = |letter: char| !letter.is_control() || matches!(letter, '\n' | '\t');
    (text.chars())
        .map(|letter| if plain(letter) { letter } else { '\u{FFFD}' })
        .collect()
}

/// Says something beside what is printed, to standard error.
pub fn aside(text: &str) {
    // A closed pipe is no reason to fail: there is nobody to tell.
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// A number as people read it, `1,000,009`.
#[must_use]
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Prints JSON, indented.
pub fn json(value: &impl Serialize) -> anyhow::Result<()> {
    line(&serde_json::to_string_pretty(value).context("print as JSON")?)
}

/// Says what was done to a thing that has no more to show: a line, or its id by
/// the word.
pub fn done(format: Format, word: &str, id: impl Display) -> anyhow::Result<()> {
    match format {
        Format::Table => line(&format!("{word} {id}")),
        Format::Json => json(&Map::from_iter([(
            word.to_owned(),
            Value::from(id.to_string()),
        )])),
    }
}

/// The beginning of a text that is longer than that.
pub fn shortened(text: &str, most: usize) -> String {
    match text.chars().count() > most {
        true => text
            .chars()
            .take(most.saturating_sub(1))
            .chain(['…'])
            .collect(),
        false => text.to_owned(),
    }
}

/// What a cell says of something that may not be there.
#[must_use]
pub fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// A table with a header; no lines, so that it can be cut and pasted.
#[must_use]
pub fn table(header: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(header);
    for row in rows {
        table.add_row(row);
    }
    table
}
