//! `paceline login` and `paceline logout`: profiles, so that a key is typed once.

use std::io::{self, IsTerminal, Read, Write};
use std::process::ExitCode;

use anyhow::{Context, bail};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use secrecy::SecretString;
use serde_json::json;
use zeroize::Zeroizing;

use super::destination::Connection;
use crate::client::{self, Client};
use crate::config::ConfigError;
use crate::output::{self, Format};
use crate::profile::{self, Profile, Profiles};

/// Longer than any key.
const MAX_KEY_BYTES: usize = 1_024;

#[derive(Debug, clap::Args)]
pub struct Login {
    #[command(flatten)]
    connection: Connection,
}

#[derive(Debug, clap::Args)]
pub struct Logout {
    /// The profile to forget [default: default]
    #[arg(long, env = "PACELINE_PROFILE", value_name = "NAME", value_parser = profile::name)]
    profile: Option<String>,
}

/// Asks for the key, tries it, and keeps it.
pub async fn login(args: Login) -> anyhow::Result<ExitCode> {
    let mut config = args.connection.client;
    let name = (config.profile.take()).unwrap_or_else(|| profile::DEFAULT.to_owned());
    let mut profiles = Profiles::required()?;
    // Another key for the same API: where that is need not be said again.
    let before = profiles.find(&name).filter(|_| config.url.is_none());
    if let Some(before) = before {
        config.url = Some(before.url.clone());
        config.tenant = config.tenant.or_else(|| before.tenant.clone());
        config.ca_file = config.ca_file.or_else(|| before.ca_file.clone());
        config.insecure_http |= before.insecure_http;
    }
    let url = client::checked_url(&config)?;
    let api_key = match config.api_key.take() {
        Some(key) => key,
        None => key(&format!("API key for {url}: ")).await?,
    };
    config.api_key = Some(api_key.clone());
    config.url = Some(url.clone());
    let aside = Client::new(&config)?.try_key().await?;
    let ca_file = config.ca_file.map(std::path::absolute).transpose();
    let kept = Profile {
        url,
        api_key,
        tenant: config.tenant,
        ca_file: ca_file.context("--ca-file")?,
        insecure_http: config.insecure_http,
    };
    let shown = kept.url.to_string();
    profiles.keep(&name, kept)?;
    if let Some(aside) = aside {
        output::aside(&aside);
    }
    let file = profiles.file().display();
    match args.connection.output {
        Format::Json => {
            output::json(&json!({"profile": name, "url": shown, "file": file.to_string()}))?
        }
        Format::Table => output::line(&format!(
            "logged in to {shown}: profile {name}, kept in {file}"
        ))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Forgets a profile. Its key stays good.
pub fn logout(args: &Logout) -> anyhow::Result<ExitCode> {
    let name = args.profile.as_deref().unwrap_or(profile::DEFAULT);
    Profiles::required()?.forget(name)?;
    output::line(&format!(
        "logged out: the profile {name} is forgotten; its key is good until `paceline key revoke`"
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// From a prompt, or from the input of a script.
async fn key(prompt: &str) -> anyhow::Result<SecretString> {
    let text = match io::stdin().is_terminal() {
        true => prompted(prompt).await?,
        false => tokio::task::spawn_blocking(|| read(io::stdin().lock())).await??,
    };
    let key = text.trim();
    if key.is_empty() {
        let problem = "no key was given: type one, or hand it in by standard input";
        bail!(ConfigError::flag("api-key", problem));
    }
    Ok(SecretString::from(key))
}

async fn prompted(prompt: &str) -> anyhow::Result<Zeroizing<String>> {
    let _hidden = Hidden::begin().context("hide what is typed")?;
    let mut out = io::stderr();
    out.write_all(prompt.as_bytes())
        .and_then(|()| out.flush())
        .context("ask")?;
    let line = tokio::task::spawn_blocking(|| {
        let mut line = Zeroizing::new(String::new());
        io::stdin().read_line(&mut line).map(|_| line)
    });
    let read = tokio::select! {
        biased;
        // Or the terminal would stay silent.
        _ = tokio::signal::ctrl_c() => bail!("nothing was kept"),
        read = line => read?.context("read the key"),
    };
    // The end of the line was not shown either.
    let _ = writeln!(io::stderr());
    read
}

fn read(input: impl Read) -> anyhow::Result<Zeroizing<String>> {
    let mut text = Zeroizing::new(String::new());
    let mut input = input.take(MAX_KEY_BYTES as u64 + 1);
    input
        .read_to_string(&mut text)
        .context("read the key from standard input")?;
    if text.len() > MAX_KEY_BYTES {
        let problem =
            format!("standard input has more than {MAX_KEY_BYTES} bytes: no key is so long");
        bail!(ConfigError::flag("api-key", problem));
    }
    Ok(text)
}

/// A terminal that does not show what is typed; as it was when this is dropped.
struct Hidden(Termios);

impl Hidden {
    fn begin() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut silent = before.clone();
        silent.local_modes.remove(LocalModes::ECHO);
        tcsetattr(io::stdin(), OptionalActions::Flush, &silent)?;
        Ok(Self(before))
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.0);
    }
}
