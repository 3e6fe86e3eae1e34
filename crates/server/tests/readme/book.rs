//! What the documents show: their fenced blocks, code in their prose, and
//! shell lines as words.

use std::collections::BTreeMap;

pub(crate) const README: &str = include_str!("../../../../README.md");

/// The documents, by name.
pub(crate) const DOCUMENTS: [(&str, &str); 25] = [
    ("README.md", README),
    ("audit.md", include_str!("../../../../docs/audit.md")),
    ("batching.md", include_str!("../../../../docs/batching.md")),
    ("cli.md", include_str!("../../../../docs/cli.md")),
    (
        "dashboard.md",
        include_str!("../../../../docs/dashboard.md"),
    ),
    (
        "event-types.md",
        include_str!("../../../../docs/event-types.md"),
    ),
    ("filters.md", include_str!("../../../../docs/filters.md")),
    (
        "from-svix.md",
        include_str!("../../../../docs/from-svix.md"),
    ),
    ("ingest.md", include_str!("../../../../docs/ingest.md")),
    ("limits.md", include_str!("../../../../docs/limits.md")),
    (
        "operations.md",
        include_str!("../../../../docs/operations.md"),
    ),
    (
        "notifications.md",
        include_str!("../../../../docs/notifications.md"),
    ),
    ("outbox.md", include_str!("../../../../docs/outbox.md")),
    (
        "receivers.md",
        include_str!("../../../../docs/receivers.md"),
    ),
    (
        "retention.md",
        include_str!("../../../../docs/retention.md"),
    ),
    ("retries.md", include_str!("../../../../docs/retries.md")),
    ("runbook.md", include_str!("../../../../docs/runbook.md")),
    ("scaling.md", include_str!("../../../../docs/scaling.md")),
    ("security.md", include_str!("../../../../docs/security.md")),
    (
        "signatures.md",
        include_str!("../../../../docs/signatures.md"),
    ),
    (
        "smart-delivery.md",
        include_str!("../../../../docs/smart-delivery.md"),
    ),
    ("tenants.md", include_str!("../../../../docs/tenants.md")),
    ("traces.md", include_str!("../../../../docs/traces.md")),
    ("what-if.md", include_str!("../../../../docs/what-if.md")),
    ("k8s/README.md", include_str!("../../../../k8s/README.md")),
];

/// The document of this name.
pub(crate) fn document(name: &str) -> &'static str {
    let found = DOCUMENTS.into_iter().find(|(called, _)| *called == name);
    found.expect("it is a document").1
}

/// The fenced blocks with their languages, without their fences and indentation.
pub(crate) fn fenced(text: &str) -> Vec<(String, String)> {
    let mut blocks: Vec<(String, String)> = Vec::new();
    let mut is_open = false;
    for line in text.lines().map(str::trim_start) {
        match (line.strip_prefix("```"), is_open) {
            (Some(language), false) => {
                blocks.push((language.to_owned(), String::new()));
                is_open = true;
            }
            (Some(_), true) => is_open = false,
            (None, true) => {
                let (_, block) = blocks.last_mut().expect("a block is open");
                block.push_str(line);
                block.push('\n');
            }
            (None, false) => {}
        }
    }
    assert!(!is_open, "a fence is not closed");
    blocks
}

/// The fenced blocks of a language.
pub(crate) fn blocks(text: &str, language: &str) -> Vec<String> {
    let of_it = fenced(text).into_iter().filter(|(of, _)| of == language);
    of_it.map(|(_, block)| block).collect()
}

/// The code between backticks outside of fences.
pub(crate) fn inline(text: &str) -> Vec<String> {
    let mut fenced = false;
    let mut found = Vec::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            found.extend(line.split('`').skip(1).step_by(2).map(str::to_owned));
        }
    }
    found
}

/// The commands of a block: lines, joined where a backslash or an open quote
/// says so. What a here-document feeds is not looked at.
pub(crate) fn commands(block: &str) -> Vec<String> {
    let mut commands = Vec::new();
    let mut command = String::new();
    let mut ends: Option<String> = None;
    for line in block.lines() {
        if let Some(end) = &ends {
            if line == end {
                ends = None;
            }
            continue;
        }
        command.push_str(line);
        if command.ends_with('\\') {
            command.pop();
            continue;
        }
        if is_quoted(&command) {
            command.push('\n');
            continue;
        }
        if let Some((_, end)) = line.split_once("<<") {
            ends = Some(end.trim_matches('\'').to_owned());
        }
        if !command.trim().is_empty() {
            commands.push(std::mem::take(&mut command));
        }
    }
    assert!(command.is_empty() && ends.is_none(), "cut off: {block}");
    commands
}

/// Whether a quote is open at its end.
fn is_quoted(command: &str) -> bool {
    let (mut quote, mut last) = (None, ' ');
    for next in command.chars() {
        match (next, quote) {
            ('#', None) if last.is_whitespace() => return false,
            ('\'' | '"', None) => quote = Some(next),
            (_, Some(open)) if next == open => quote = None,
            _ => {}
        }
        last = next;
    }
    quote.is_some()
}

/// A command's words, with these variables, as a shell would split them; up to
/// a comment.
pub(crate) fn words(command: &str, variables: &BTreeMap<String, String>) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut word: Option<String> = None;
    let mut quote: Option<char> = None;
    let mut rest = command.chars().peekable();
    while let Some(next) = rest.next() {
        match (next, quote) {
            (' ', None) => words.extend(word.take()),
            ('#', None) if word.is_none() => break,
            ('\'' | '"', None) => {
                quote = Some(next);
                word.get_or_insert_default();
            }
            (_, Some(open)) if next == open => quote = None,
            ('$', None | Some('"')) => {
                let mut name = String::new();
                while let Some(letter) = rest.next_if(|c| c.is_ascii_alphanumeric() || *c == '_') {
                    name.push(letter);
                }
                let value = variables.get(&name);
                let value = value.unwrap_or_else(|| panic!("${name} is not set: {command}"));
                word.get_or_insert_default().push_str(value);
            }
            _ => word.get_or_insert_default().push(next),
        }
    }
    assert_eq!(quote, None, "a quote is not closed: {command}");
    words.extend(word);
    words
}

#[test]
fn commands_are_split_as_a_shell_splits_them() {
    let variables = BTreeMap::from([("ID".to_owned(), "7".to_owned())]);
    let block =
        "a -d '{\"x\": \"'$ID'\"}' \\\n  \"b $ID\" '$ID' # c\npython3 - <<'END'\nd\nEND\ne\n";
    let split: Vec<_> = (commands(block).iter())
        .map(|command| words(command, &variables))
        .collect();
    assert_eq!(split[0], ["a", "-d", "{\"x\": \"7\"}", "b 7", "$ID"]);
    assert_eq!(split[1][0], "python3");
    assert_eq!(split[2], ["e"]);
    let quoted = commands("f '{\n\"g\": 1\n}' # it's\nh\n");
    assert_eq!(quoted, ["f '{\n\"g\": 1\n}' # it's", "h"]);
}
