//! `paceline import svix`: a tenant of each application, a destination of each endpoint,
//! and the catalogue of event types.
//!
//! ```text
//!  Svix ── source ──► planned ──► target ── Paceline's API
//!          (reads)    (decides)   (writes)      │
//!                        └──────► report ◄──────┘
//! ```
//!
//! One thing after the other, and each by itself: what fails is reported, and the rest goes
//! on. External ids say what is there already, so a second run doubles nothing. It holds the
//! secret of one endpoint at a time, and never prints one.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use secrecy::{ExposeSecret, SecretString};
use url::Url;

use crate::api_key;
use crate::client::wire::Place;
use crate::client::{Client, ClientConfig};
use crate::commands::destination::Connection;
use crate::config::ConfigError;
use crate::progress::{Measure, Progress};
use report::{Kind, Report};
use source::{Application, Endpoint, Svix};
use target::{Target, Tenant};

mod planned;
mod report;
mod source;
mod target;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The token of Svix's API.
    #[arg(
        long,
        env = "SVIX_AUTH_TOKEN",
        value_name = "TOKEN",
        hide_env_values = true
    )]
    pub svix_token: Option<SecretString>,

    /// A file that holds it, instead.
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,

    /// Svix's API, or a server of your own [default: that of the token's region, such as
    /// https://api.eu.svix.com]
    #[arg(long, env = "PACELINE_SVIX_URL", value_name = "URL")]
    pub svix_url: Option<Url>,

    /// The plan tier of tenants that are created.
    #[arg(long, value_name = "TIER", default_value = "standard")]
    pub tier: String,

    /// Say what would be done, and do nothing.
    #[arg(long)]
    pub dry_run: bool,

    #[command(flatten)]
    pub connection: Connection,
}

/// What a token without a region belongs to.
const HOSTED: &str = "https://api.svix.com";

/// The regions that a token may end in.
const REGIONS: [&str; 5] = ["us", "eu", "in", "ca", "au"];

/// Does it; whether nothing failed.
pub(super) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let token = token(&args)?;
    let place = place(&args.connection.client, args.svix_url, &token)?;
    let svix = Svix::new(place, token)?;
    let client = Client::administering(&args.connection.client)?;
    let mut import = Import {
        svix,
        target: Target {
            client,
            tier: args.tier,
            dry_run: args.dry_run,
        },
        report: Report::new(args.dry_run),
    };
    let applications = import.svix.applications().await;
    let applications = applications.context("list the applications of Svix")?;
    let count = Measure::Things(applications.len() as u64);
    let progress = Progress::begin("importing", count, args.connection.output);
    import.event_types().await;
    for (done, application) in (0..).zip(&applications) {
        progress.at(done);
        import.application(application).await;
    }
    drop(progress);
    import.report.print(args.connection.output)?;
    Ok(match import.report.is_whole() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

fn token(args: &Args) -> anyhow::Result<SecretString> {
    let missing = || ConfigError {
        name: "--token-file".to_owned(),
        problem: "no token: name a file that holds it, or set SVIX_AUTH_TOKEN".to_owned(),
    };
    let Some(file) = &args.token_file else {
        let token = args.svix_token.clone();
        let token = token.filter(|token| !token.expose_secret().is_empty());
        return Ok(token.ok_or_else(missing)?);
    };
    let read = api_key::read(file).with_context(|| format!("read {}", file.display()))?;
    Ok(read.ok_or_else(missing)?)
}

fn place(
    client: &ClientConfig,
    url: Option<Url>,
    token: &SecretString,
) -> Result<Place, ConfigError> {
    let url = match url {
        Some(url) => url,
        None => Url::parse(&hosted(token.expose_secret()))
            .map_err(|error| ConfigError::flag("svix-url", error.to_string()))?,
    };
    Ok(Place {
        url,
        ca_file: client.ca_file.clone(),
        insecure_http: client.insecure_http,
    })
}

/// Where Svix's own libraries look: a token ends in its region, if it has one.
fn hosted(token: &str) -> String {
    let region = token.rsplit_once('.').map_or("", |(_, region)| region);
    match REGIONS.contains(&region) {
        true => format!("https://api.{region}.svix.com"),
        false => HOSTED.to_owned(),
    }
}

/// Whose destinations the endpoints of an application become.
struct Owner {
    tenant: Tenant,
    /// They share a limit.
    has_group: bool,
}

struct Import {
    svix: Svix,
    target: Target,
    report: Report,
}

impl Import {
    async fn event_types(&mut self) {
        let types = match self.svix.event_types().await {
            Ok(types) => types,
            Err(error) => return self.report.failed("event types", &error),
        };
        for one in types {
            let mut planned = planned::Type::of(&one);
            match self.target.event_type(&mut planned).await {
                Ok(done) => {
                    let at = (one.name.as_str(), one.name.as_str());
                    self.report.written(Kind::EventType, at, done);
                    self.report.left(&one.name, planned.left);
                }
                Err(error) => self.report.failed(&one.name, &error),
            }
        }
    }

    async fn application(&mut self, application: &Application) {
        let (owner, endpoints) = match self.owner(application).await {
            Ok(found) => found,
            Err(error) => return self.report.failed(&application.id, &error),
        };
        for endpoint in endpoints {
            if let Err(error) = self.endpoint(application, &owner, &endpoint).await {
                self.report.failed(&endpoint.id, &error);
            }
        }
    }

    /// Its tenant, the limit group of its endpoints, and these.
    async fn owner(&mut self, application: &Application) -> anyhow::Result<(Owner, Vec<Endpoint>)> {
        let id = application.id.as_str();
        let mut planned = planned::Tenant::of(application)?;
        let (tenant, done) = self.target.tenant(&planned).await?;
        let called = planned.external_id.as_str();
        self.report.written(Kind::Tenant, (id, called), done);
        let endpoints = self.svix.endpoints(id).await?;
        let group = planned.group(endpoints.len());
        self.report.left(id, planned.left);
        if let Some(limits) = group {
            let done = self.target.group(&tenant, limits).await?;
            let at = (id, planned::GROUP);
            self.report.written(Kind::LimitGroup, at, done);
        }
        let owner = Owner {
            tenant,
            has_group: group.is_some(),
        };
        Ok((owner, endpoints))
    }

    async fn endpoint(
        &mut self,
        application: &Application,
        Owner { tenant, has_group }: &Owner,
        endpoint: &Endpoint,
    ) -> anyhow::Result<()> {
        let at = (application.id.as_str(), endpoint.id.as_str());
        let headers = self.svix.headers(at).await?;
        let transformed = self.svix.is_transformed(at).await?;
        let mut planned = planned::Destination::of(endpoint, headers, transformed)?;
        planned.in_group = *has_group;
        let there = self.target.find(tenant, &planned.external_id).await?;
        let done = match &there {
            Some(there) => self.target.update(tenant, there, &mut planned).await?,
            None => {
                let secret = planned::secret(self.svix.secret(at).await?)?;
                self.target.create(tenant, &planned, &secret).await?
            }
        };
        let called = planned.external_id.as_str();
        self.report
            .written(Kind::Destination, (&endpoint.id, called), done);
        self.report.left(&endpoint.id, planned.left);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_says_its_region() {
        for (token, url) in [
            ("sk_abc.eu", "https://api.eu.svix.com"),
            ("testsk_abc.us", "https://api.us.svix.com"),
            ("sk_abc", HOSTED),
            ("sk_abc.evil.example", HOSTED),
            ("eu", HOSTED),
        ] {
            assert_eq!(hosted(token), url, "{token}");
        }
    }
}
