//! A page as a person reads it: its words, its tables, its figures.

use std::fmt::{self, Display};

/// A page, or a part of one.
#[derive(Debug, Clone)]
pub(crate) struct Page(pub(crate) String);

/// A row of a table, cell by cell, under the words above its columns.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    html: String,
    cells: Vec<(String, String)>,
}

impl Display for Page {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&words(&self.0))
    }
}

impl Page {
    pub(crate) fn has(&self, text: &str) -> bool {
        self.to_string().contains(text)
    }

    /// The section under the heading of this id; empty if there is none.
    pub(crate) fn section(&self, id: &str) -> Self {
        let begins = format!("aria-labelledby=\"{id}\"");
        Self(
            between(&self.0, &begins, "</section>")
                .unwrap_or_default()
                .to_owned(),
        )
    }

    /// What stands beside this word in the figures.
    pub(crate) fn figure(&self, name: &str) -> String {
        let found = between(&self.0, &format!("<dt>{name}</dt>"), "</dd>");
        words(found.unwrap_or_else(|| panic!("no {name} in {self}")))
    }

    /// The words of the element of this id.
    pub(crate) fn element(&self, id: &str) -> String {
        let found = between(&self.0, &format!("id=\"{id}\""), "</");
        let found = found.and_then(|rest| rest.split_once('>'));
        words(found.unwrap_or_else(|| panic!("no {id} in {self}")).1)
    }

    pub(crate) fn rows(&self) -> Vec<Row> {
        let tables = self.0.split("<table").skip(1);
        let tables = tables.map(|rest| rest.split("</table>").next().unwrap_or(rest));
        tables.flat_map(rows).collect()
    }

    /// The row that begins so.
    #[track_caller]
    pub(crate) fn row(&self, name: &str) -> Row {
        let found = self.rows().into_iter().find(|row| row.name() == name);
        found.unwrap_or_else(|| panic!("no row of {name} in {self}"))
    }

    /// An attribute of the first element that has this text in its tag.
    pub(crate) fn attribute(&self, element: &str, name: &str) -> String {
        let tag = self.0.split('<').find(|tag| {
            let tag = tag.split('>').next().unwrap_or_default();
            tag.contains(element)
        });
        let tag = tag.unwrap_or_else(|| panic!("no {element} in {self}"));
        let value = between(tag, &format!(" {name}=\""), "\"");
        words(value.unwrap_or_else(|| panic!("{element} has no {name}: {tag}")))
    }
}

impl Row {
    pub(crate) fn name(&self) -> &str {
        self.cells.first().map_or("", |(_, text)| text)
    }

    #[track_caller]
    pub(crate) fn get(&self, column: &str) -> &str {
        let found = self.cells.iter().find(|(name, _)| name == column);
        let (_, text) = found.unwrap_or_else(|| panic!("no {column} in {:?}", self.cells));
        text
    }

    /// The colour of its state: `good`, `idle`, `warn` or `bad`.
    pub(crate) fn tone(&self) -> &str {
        between(&self.html, "class=\"tone ", "\"").unwrap_or_default()
    }
}

fn rows(table: &str) -> Vec<Row> {
    let head = between(table, "<thead>", "</thead>").unwrap_or_default();
    let columns = cells(head);
    let body = table.split("<tbody>").nth(1).unwrap_or_default();
    let each = body.split("<tr").skip(1);
    each.map(|html| Row {
        html: html.to_owned(),
        cells: columns.iter().cloned().zip(cells(html)).collect(),
    })
    .collect()
}

fn cells(html: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = html;
    while let Some(at) = [rest.find("<th"), rest.find("<td")]
        .into_iter()
        .flatten()
        .min()
    {
        let tag = &rest[at..];
        let (_, inside) = tag.split_once('>').unwrap_or((tag, ""));
        let end = ["</th>", "</td>"]
            .iter()
            .filter_map(|end| inside.find(end))
            .min();
        let end = end.unwrap_or(inside.len());
        // Not `<thead>`.
        if tag.starts_with("<th ") || tag.starts_with("<th>") || tag.starts_with("<td") {
            found.push(words(&inside[..end]));
        }
        rest = &inside[end..];
    }
    found
}

pub(crate) fn between<'a>(text: &'a str, begins: &str, ends: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(begins)?;
    rest.split_once(ends).map(|(found, _)| found)
}

/// Without tags, with single spaces.
fn words(html: &str) -> String {
    let (mut text, mut is_tag) = (String::new(), false);
    for letter in html.chars() {
        match letter {
            '<' => {
                is_tag = true;
                // `</td><td>` parts words, `<b>` and `</b>` do not matter.
                text.push(' ');
            }
            '>' => is_tag = false,
            letter if !is_tag => text.push(letter),
            _ => {}
        }
    }
    for (entity, letter) in [
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&quot;", "\""),
        ("&#34;", "\""),
        ("&#39;", "'"),
        ("&#60;", "<"),
        ("&#62;", ">"),
        ("&#38;", "&"),
        ("&amp;", "&"),
    ] {
        text = text.replace(entity, letter);
    }
    let text: Vec<&str> = text.split_whitespace().collect();
    text.join(" ")
}

/// Of a table in a terminal, the cells of the row that begins so, by the words above
/// them: columns are parted by two spaces at least.
#[track_caller]
pub(crate) fn line(table: &str, name: &str) -> Vec<(String, String)> {
    let begins = |line: &&str| line.trim_start().starts_with(name);
    let head = table.lines().find(|line| line.contains("DESTINATION"));
    let line = table.lines().find(begins);
    let line = line.unwrap_or_else(|| panic!("no {name} in:\n{table}"));
    let head = head.unwrap_or_default();
    let mut columns: Vec<(usize, String)> = Vec::new();
    for word in head
        .split("  ")
        .map(str::trim)
        .filter(|word| !word.is_empty())
    {
        let from = columns.last().map_or(0, |(at, last)| at + last.len());
        let at = from + head[from..].find(word).unwrap();
        columns.push((at, word.to_owned()));
    }
    let letters: Vec<char> = line.chars().collect();
    let ends = columns
        .iter()
        .skip(1)
        .map(|(at, _)| *at)
        .chain([letters.len()]);
    let cells = columns.iter().zip(ends).map(|((at, word), end)| {
        let cell: String = letters[(*at).min(end)..end.min(letters.len())]
            .iter()
            .collect();
        (word.clone(), cell.trim().to_owned())
    });
    cells.collect()
}

/// A cell of it, under the word that begins so.
#[track_caller]
pub(crate) fn cell(table: &str, name: &str, column: &str) -> String {
    let cells = line(table, name);
    let found = cells.iter().find(|(word, _)| word.starts_with(column));
    found
        .unwrap_or_else(|| panic!("no {column} in:\n{table}"))
        .1
        .clone()
}

/// `2 min 12 s`, `2m 12s`, `44 min`, `850 ms`, in seconds.
#[track_caller]
pub(crate) fn seconds(span: &str) -> f64 {
    let mut spaced = String::new();
    for letter in span.chars() {
        if letter.is_alphabetic() && spaced.ends_with(|last: char| last.is_ascii_digit()) {
            spaced.push(' ');
        }
        spaced.push(letter);
    }
    let parts: Vec<&str> = spaced.split_whitespace().collect();
    let each = parts.chunks(2).map(|part| {
        let [number, unit] = part else {
            panic!("{span} is no span of time")
        };
        let number: f64 = number
            .parse()
            .unwrap_or_else(|_| panic!("{span} is no span of time"));
        number
            * match *unit {
                "ms" => 0.001,
                "s" => 1.0,
                "m" | "min" => 60.0,
                "h" => 3_600.0,
                "d" | "day" | "days" => 86_400.0,
                _ => panic!("{span} is no span of time"),
            }
    });
    each.sum()
}

/// How many failed of how many lately, as a table in a terminal says it.
#[track_caller]
pub(crate) fn failed(table: &str, name: &str) -> String {
    let cell = cell(table, name, "FAILED");
    // The shares of longer times stand beside it.
    cell.split(" / ").next().unwrap_or_default().to_owned()
}
