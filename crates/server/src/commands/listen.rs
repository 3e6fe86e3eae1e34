//! `paceline listen`: a tenant's new events, sent to a program that is being written.
//!
//! It makes no destination, and nothing of it is in the ledger: it reads the events over
//! the API and sends each once, in their order, as a worker would.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use adapters::http::{HttpOptions, HttpSender, Policy};
use anyhow::Context;
use bytes::Bytes;
use domain::header::CustomHeaders;
use domain::ids::{AttemptId, DestinationId, Epoch, EventId};
use domain::signature::{Key, Signer, SigningSecret};
use engine::ports::{FirstByte, Request, Response, SendError, Sender, Target};
use http::StatusCode;
use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;
use tokio_util::sync::CancellationToken;
use url::Url;
use uuid::Uuid;

use super::destination::Connection;
use crate::api::events::{EventList, EventPayload, ListedEvent, NOT_SHOWN};
use crate::client::{Client, status};
use crate::config::{ConfigError, SignatureConfig};
use crate::output::{self, Format};
use crate::service::MAX_EVENTS_LISTED;
use crate::{edge, signals};
use seen::Seen;

mod seen;

/// Between two looks, while all goes well.
const EVERY: Duration = Duration::from_secs(1);

/// And at most, while the API cannot be asked.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// So many pages of new events are read at one look.
const MAX_PAGES: usize = 10;

/// How long the program may take: somebody may be stepping through it.
const TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Where each event is posted to, such as http://127.0.0.1:3000/hook.
    #[arg(long, value_name = "URL")]
    pub forward_to: Url,

    /// Only events of this type.
    #[arg(long = "type", alias = "event-type", value_name = "TYPE")]
    pub event_type: Option<String>,

    /// Sign with this secret, whsec_… or whsk_…; better set by its variable. Without it
    /// nothing is signed.
    #[arg(
        long,
        env = "PACELINE_SECRET",
        value_name = "SECRET",
        hide_env_values = true
    )]
    pub secret: Option<SecretString>,

    #[command(flatten)]
    pub signature: SignatureConfig,

    #[command(flatten)]
    pub connection: Connection,
}

/// Looks and sends until it is interrupted.
pub async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let client = Client::new(&args.connection.client)?;
    let to = Receiver::new(&args)?;
    signals::until_stopped(|shutdown| async move {
        let mut listener = Listener {
            format: args.connection.output,
            event_type: args.event_type,
            client,
            to,
            seen: Seen::default(),
            sent: Sent::default(),
        };
        listener.begin().await?;
        let ended = listener.listen(&shutdown).await;
        listener.summary()?;
        ended.map(|()| ExitCode::SUCCESS)
    })
    .await
}

struct Listener {
    client: Client,
    event_type: Option<String>,
    to: Receiver,
    seen: Seen,
    sent: Sent,
    format: Format,
}

/// How many were sent, and how many of them were answered with 2xx.
#[derive(Debug, Default, Serialize)]
struct Sent {
    forwarded: u64,
    succeeded: u64,
}

/// What became of one event.
#[derive(Debug, Serialize)]
struct Line<'a> {
    id: Uuid,
    #[serde(rename = "type")]
    event_type: Option<&'a str>,
    status: Option<u16>,
    elapsed_ms: u64,
    error: Option<String>,
}

impl Listener {
    /// What is there already is not sent.
    async fn begin(&mut self) -> anyhow::Result<()> {
        self.seen.begin(edge::now());
        let page = self.page(None).await?;
        for event in &page.events {
            self.seen.note(event.id);
        }
        if let (Some(_), Some(oldest)) = (page.next, page.events.last()) {
            self.seen.leave_below(oldest.id);
        }
        self.seen.follow(edge::now());
        output::aside(&format!(
            "new events of {} go to {}; Ctrl-C ends it",
            self.client.url(),
            self.to.target.url
        ));
        Ok(())
    }

    async fn listen(&mut self, shutdown: &CancellationToken) -> anyhow::Result<()> {
        let mut pause = EVERY;
        loop {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return Ok(()),
                () = tokio::time::sleep(pause) => {}
            }
            pause = match self.look(shutdown).await {
                Ok(()) => EVERY,
                Err(error) if is_final(&error) => return Err(error),
                Err(error) => {
                    let longer = (pause * 2).min(LONGEST_PAUSE);
                    output::aside(&format!("{error:#}; looks again in {} s", longer.as_secs()));
                    longer
                }
            };
        }
    }

    /// Sends what is new. What an error leaves is new at the next look.
    async fn look(&mut self, shutdown: &CancellationToken) -> anyhow::Result<()> {
        for event in self.new_events().await? {
            if shutdown.is_cancelled() {
                return Ok(());
            }
            self.forward(&event).await?;
            self.seen.note(event.id);
        }
        self.seen.follow(edge::now());
        Ok(())
    }

    /// In the order of their ids.
    async fn new_events(&mut self) -> anyhow::Result<Vec<ListedEvent>> {
        let mut found: Vec<ListedEvent> = Vec::new();
        let mut before = None;
        for _ in 0..MAX_PAGES {
            let page = self.page(before).await?;
            let at_floor = (page.events.last()).is_some_and(|last| self.seen.is_below(last.id));
            found.extend((page.events.into_iter()).filter(|event| self.seen.is_new(event.id)));
            before = page.next;
            let at_floor = at_floor || before.is_some_and(|next| self.seen.is_below(next));
            if at_floor || before.is_none() {
                found.sort_by_key(|event| event.id);
                return Ok(found);
            }
        }
        found.sort_by_key(|event| event.id);
        if let Some(oldest) = found.first() {
            output::aside(&format!(
                "there are more new events than the {} that are read at once: those before {} \
                 are left out",
                found.len(),
                oldest.id
            ));
            self.seen.leave_below(oldest.id);
        }
        Ok(found)
    }

    async fn page(&self, before: Option<Uuid>) -> anyhow::Result<EventList> {
        let mut query = url::form_urlencoded::Serializer::new(String::new());
        query.append_pair("limit", &MAX_EVENTS_LISTED.to_string());
        if let Some(event_type) = &self.event_type {
            query.append_pair("type", event_type);
        }
        if let Some(before) = before {
            query.append_pair("before", &before.to_string());
        }
        let path = format!("/v1/events?{}", query.finish());
        self.client.get(&path).await
    }

    async fn forward(&mut self, event: &ListedEvent) -> anyhow::Result<()> {
        let path = format!("/v1/events/{}/payload", event.id);
        let payload: EventPayload = match self.client.get(&path).await {
            Ok(payload) => payload,
            Err(error) if status(&error) == Some(StatusCode::NOT_FOUND) => {
                return self.say(event, Err("its payload is not kept any more".to_owned()));
            }
            Err(error) => return Err(error),
        };
        let Some(bytes) = payload.bytes().context("read the payload")? else {
            return self.say(event, Err(NOT_SHOWN.to_owned()));
        };
        let answer = self
            .to
            .send(event.id, payload.content_type, bytes.into())
            .await;
        self.sent.forwarded += 1;
        if (answer.as_ref()).is_ok_and(|answer| (200..300).contains(&answer.status)) {
            self.sent.succeeded += 1;
        }
        self.say(event, answer.map_err(|error| error.to_string()))
    }

    fn say(&self, event: &ListedEvent, answer: Result<Response, String>) -> anyhow::Result<()> {
        let (status, elapsed, error) = match answer {
            Ok(answer) => (Some(answer.status), answer.elapsed, None),
            Err(error) => (None, Duration::ZERO, Some(error)),
        };
        let line = Line {
            id: event.id,
            event_type: event.event_type.as_deref(),
            status,
            elapsed_ms: u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX),
            error,
        };
        output::line(&match self.format {
            Format::Json => serde_json::to_string(&line).context("print as JSON")?,
            Format::Table => line.for_people(),
        })
    }

    fn summary(&self) -> anyhow::Result<()> {
        output::line(&match self.format {
            Format::Json => serde_json::to_string(&self.sent).context("print as JSON")?,
            Format::Table => format!(
                "{} events forwarded, {} of them answered with 2xx",
                self.sent.forwarded, self.sent.succeeded
            ),
        })
    }
}

impl Line<'_> {
    fn for_people(&self) -> String {
        let event_type = self.event_type.unwrap_or("-");
        match (self.status, &self.error) {
            (Some(status), _) => {
                format!(
                    "{}  {event_type}  {status}  {} ms",
                    self.id, self.elapsed_ms
                )
            }
            (None, error) => {
                let error = error.as_deref().unwrap_or_default();
                format!("{}  {event_type}  {error}", self.id)
            }
        }
    }
}

/// The program that is being written.
struct Receiver {
    sender: HttpSender,
    target: Target,
    signer: Signer,
}

impl Receiver {
    fn new(args: &Args) -> anyhow::Result<Self> {
        let refused = |flag: &str, problem: String| ConfigError {
            name: format!("--{flag}"),
            problem,
        };
        let url = &args.forward_to;
        let port = url.port_or_known_default().unwrap_or(80);
        let near = ["localhost:*", "private:*"].map(str::parse);
        let policy = Policy {
            allow_http: true,
            ports: vec![port],
            networks: near
                .into_iter()
                .collect::<Result<_, _>>()
                .context("networks")?,
            ..Policy::default()
        };
        adapters::http::place(url.as_str(), &policy)
            .map_err(|error| refused("forward-to", error.to_string()))?;
        let key = |secret: &SecretString| {
            let secret = SigningSecret::parse(secret.expose_secret());
            secret.map(|secret| Key {
                secret,
                expires_at: None,
            })
        };
        let key = args.secret.as_ref().map(key).transpose();
        let key = key.map_err(|problem| ConfigError::flag("secret", problem.to_string()))?;
        Ok(Self {
            sender: HttpSender::new(HttpOptions {
                policy,
                signature_prefix: args.signature.signature_prefix,
                ..HttpOptions::default()
            }),
            target: Target {
                destination: DestinationId(Uuid::nil()),
                epoch: Epoch(0),
                url: url.to_string(),
                timeout: TIMEOUT,
                batches: false,
                pass_traceparent: false,
                names_origin: false,
                identity: None,
                secrets: Vec::new(),
            },
            signer: Signer::new(key.into_iter().collect()),
        })
    }

    /// Once: whoever is at it sees what went wrong, and sends another event.
    async fn send(
        &self,
        event: Uuid,
        content_type: String,
        payload: Bytes,
    ) -> Result<Response, SendError> {
        let connection = self.sender.prepare(&self.target).await?;
        let now = edge::now();
        let sent_at_seconds = now.as_micros().div_euclid(1_000_000);
        let id = event.to_string();
        let request = Request {
            attempt: AttemptId(0),
            event: EventId(event),
            batch: None,
            try_number: 1,
            sent_at_seconds,
            signature: self.signer.sign(now, &id, sent_at_seconds, &payload),
            headers: Arc::new(CustomHeaders::default()),
            token: None,
            trace: None,
            content_type,
            payload,
            timeout: TIMEOUT,
        };
        connection.send(request, FirstByte::default()).await
    }
}

/// Whether it will be the same at every further look: a key that is not good, or not for
/// that.
fn is_final(error: &anyhow::Error) -> bool {
    matches!(
        status(error),
        Some(StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
    )
}
