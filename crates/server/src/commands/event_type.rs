//! `paceline event-type …`: the catalogue of event types, over the API.

use std::process::ExitCode;
use std::str::FromStr;

use clap::{ArgAction, Args, Subcommand};
use http::Method;
use serde::Serialize;
use serde_json::value::RawValue;

use super::destination::Connection;
use super::sure::Sure;
use crate::api::event_types::{EventType, EventTypeLine, EventTypeList};
use crate::client::Client;
use crate::output::{self, Format};

#[derive(Debug, Subcommand)]
pub enum Command {
    /// List the types that the platform describes.
    List {
        /// With those that are archived.
        #[arg(long)]
        archived: bool,
        #[command(flatten)]
        connection: Connection,
    },
    /// Show a type with its schema and its example.
    Show {
        /// Its name.
        name: String,
        #[command(flatten)]
        connection: Connection,
    },
    /// Describe a type; for the scope `admin`.
    Create {
        /// What events call it, such as order.paid.
        name: String,
        #[command(flatten)]
        says: Says,
        #[command(flatten)]
        connection: Connection,
    },
    /// Change what is named and nothing else; for the scope `admin`.
    Update {
        /// Its name.
        name: String,
        #[command(flatten)]
        says: Says,
        #[command(flatten)]
        connection: Connection,
    },
    /// Forget what is said of a type, and show what was hidden of its payloads; for the
    /// scope `admin`.
    Delete {
        /// Its name.
        name: String,
        #[command(flatten)]
        sure: Sure,
        #[command(flatten)]
        connection: Connection,
    },
}

/// What is said of a type.
#[derive(Debug, Clone, Args)]
pub struct Says {
    /// What it is, for people.
    #[arg(long, value_name = "TEXT")]
    pub description: Option<String>,

    /// A JSON schema of its payloads; `@FILE` reads it from a file, `none` takes it away.
    #[arg(long, value_name = "JSON")]
    pub schema: Option<Json>,

    /// A payload of it; `@FILE` reads it from a file, `none` takes it away.
    #[arg(long, value_name = "JSON")]
    pub example: Option<Json>,

    /// What is not shown of its payloads: a JSON pointer such as /card/number, with `*` for
    /// each element of an array. Repeatable: all of them, or `none`.
    #[arg(long = "redact", value_name = "POINTER")]
    pub redact: Vec<String>,

    /// Whether it is archived: it is offered to nobody then.
    #[arg(long, value_name = "BOOL", action = ArgAction::Set)]
    #[arg(default_missing_value = "true", num_args = 0..=1, require_equals = true)]
    pub archived: Option<bool>,
}

/// JSON as it stands, or none.
#[derive(Debug, Clone)]
pub struct Json(Option<Box<RawValue>>);

impl Json {
    fn raw(&self) -> Option<Raw<'_>> {
        self.0.as_deref().map(Raw)
    }
}

const NONE: &str = "none";

impl FromStr for Json {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == NONE {
            return Ok(Self(None));
        }
        let read = match text.strip_prefix('@') {
            None => Ok(text.to_owned()),
            Some(file) => std::fs::read_to_string(file)
                .map_err(|problem| format!("cannot read {file}: {problem}")),
        };
        match serde_json::from_str(&read?) {
            Ok(json) => Ok(Self(Some(json))),
            Err(problem) => Err(format!("expected JSON, @FILE or none: {problem}")),
        }
    }
}

/// A body of the API: what is not set is not in it.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
struct Body<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    schema: Option<Option<Raw<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    example: Option<Option<Raw<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    redact: Option<&'a [String]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    archived: Option<bool>,
}

/// Compared by its text.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(transparent)]
struct Raw<'a>(&'a RawValue);

impl PartialEq for Raw<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.0.get() == other.0.get()
    }
}

impl Eq for Raw<'_> {}

impl Says {
    fn body(&self) -> Body<'_> {
        Body {
            name: None,
            description: self.description.as_deref(),
            schema: self.schema.as_ref().map(Json::raw),
            example: self.example.as_ref().map(Json::raw),
            redact: match &self.redact[..] {
                [] => None,
                [none] if none == NONE => Some(&[]),
                pointers => Some(pointers),
            },
            archived: self.archived,
        }
    }
}

const PATH: &str = "/v1/event-types";

/// Does it, and prints what it got.
pub async fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::List {
            archived,
            connection,
        } => {
            let event_types = list(&Client::new(&connection.client)?, archived).await?;
            match connection.output {
                Format::Json => output::json(&EventTypeList {
                    event_types,
                    next: None,
                })?,
                Format::Table => output::line(&table(&event_types))?,
            }
        }
        Command::Show { name, connection } => {
            let client = Client::new(&connection.client)?;
            let found: EventType = client.get(&path(&name)).await?;
            print(&found, connection.output)?;
        }
        Command::Create {
            name,
            says,
            connection,
        } => {
            let body = Body {
                name: Some(&name),
                ..says.body()
            };
            let client = Client::administering(&connection.client)?;
            let created: EventType = client.send(Method::POST, PATH, &body).await?;
            print(&created, connection.output)?;
        }
        Command::Update {
            name,
            says,
            connection,
        } => {
            let body = says.body();
            anyhow::ensure!(
                body != Body::default(),
                "nothing to change: name what, such as --description or --redact"
            );
            let client = Client::administering(&connection.client)?;
            let changed: EventType = client.send(Method::PATCH, &path(&name), &body).await?;
            print(&changed, connection.output)?;
        }
        Command::Delete {
            name,
            sure,
            connection,
        } => {
            sure.check()?;
            let client = Client::administering(&connection.client)?;
            sure.ask(async || {
                Ok(format!(
                    "Forgets the event type {name}. What was hidden of its payloads is shown then."
                ))
            })
            .await?;
            client.delete(&path(&name)).await?;
            output::done(connection.output, "deleted", name)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// All of them.
async fn list(client: &Client, archived: bool) -> anyhow::Result<Vec<EventTypeLine>> {
    let mut found = Vec::new();
    let mut after = String::new();
    loop {
        let path = format!("{PATH}?archived={archived}&limit=1000{after}");
        let page: EventTypeList = client.get(&path).await?;
        found.extend(page.event_types);
        match page.next {
            Some(next) => after = format!("&after={}", in_path(&next)),
            None => return Ok(found),
        }
    }
}

/// Of all that a type's name has, only a slash means something in a path.
fn in_path(name: &str) -> String {
    let encoded: String = url::form_urlencoded::byte_serialize(name.as_bytes()).collect();
    encoded.replace('+', "%20")
}

pub(in crate::commands) fn path(name: &str) -> String {
    format!("{PATH}/{}", in_path(name))
}

fn print(found: &EventType, format: Format) -> anyhow::Result<()> {
    if format == Format::Json {
        return output::json(found);
    }
    output::line(&table(&[EventTypeLine {
        name: found.name.clone(),
        description: found.description.clone(),
        redact: found.redact.clone(),
        archived: found.archived,
        has_schema: found.schema.is_some(),
        has_example: found.example.is_some(),
    }]))?;
    for (title, json) in [("example", &found.example), ("schema", &found.schema)] {
        if let Some(json) = json {
            output::line(&format!("\n{title}:\n{}", json.get()))?;
        }
    }
    Ok(())
}

fn table(types: &[EventTypeLine]) -> String {
    let yes = |is: bool| if is { "yes" } else { "-" }.to_owned();
    let rows = types.iter().map(|one| {
        let redact = (!one.redact.is_empty()).then(|| one.redact.join(" "));
        vec![
            one.name.clone(),
            yes(one.archived),
            yes(one.has_schema),
            yes(one.has_example),
            output::or_dash(redact),
            one.description.replace('\n', " "),
        ]
    });
    let header = [
        "NAME",
        "ARCHIVED",
        "SCHEMA",
        "EXAMPLE",
        "NOT SHOWN",
        "DESCRIPTION",
    ];
    output::table(&header, rows).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn says() -> Says {
        Says {
            description: None,
            schema: None,
            example: None,
            redact: Vec::new(),
            archived: None,
        }
    }

    #[test]
    fn what_is_not_said_is_not_in_the_body_and_json_stays_as_it_stands() {
        assert_eq!(says().body(), Body::default());
        let all = Says {
            schema: Some("none".parse().unwrap()),
            example: Some(r#"{"b": 1.50, "a": 1}"#.parse().unwrap()),
            redact: vec!["/b".to_owned(), "/a".to_owned()],
            ..says()
        };
        assert_eq!(
            serde_json::to_string(&all.body()).unwrap(),
            r#"{"schema":null,"example":{"b": 1.50, "a": 1},"redact":["/b","/a"]}"#
        );
        let none = Says {
            redact: vec!["none".to_owned()],
            ..says()
        };
        assert_eq!(
            serde_json::to_string(&none.body()).unwrap(),
            r#"{"redact":[]}"#
        );
        assert!("{".parse::<Json>().unwrap_err().contains("expected JSON"));
        assert!(
            "@/none/such"
                .parse::<Json>()
                .unwrap_err()
                .contains("cannot read")
        );
    }

    #[test]
    fn a_name_stands_in_a_path() {
        assert_eq!(path("order.paid"), "/v1/event-types/order.paid");
        assert_eq!(path("a/b:c"), "/v1/event-types/a%2Fb%3Ac");
    }
}
