//! How people are told what operators must know, and where pages are found.

use adapters::post::{BadMail, Mail};
use clap::Args;

use super::{ConfigError, PublicUrl, SecretUrl};

/// What links to the pages begin with.
#[derive(Debug, Clone, Default, Args)]
pub struct LinksConfig {
    /// Where people find the dashboard, such as `https://hooks.example.com`: what
    /// links to it begin with.
    #[arg(long, env = "PACELINE_PUBLIC_URL", value_name = "URL")]
    pub public_url: Option<PublicUrl>,
}

/// The mail server of notices.
#[derive(Debug, Clone, Default, Args)]
pub struct MailConfig {
    /// The server that mails to people go through: `smtp://HOST`,
    /// `smtp://USER:PASSWORD@HOST?tls=required` or `smtps://USER:PASSWORD@HOST`.
    #[arg(
        long,
        env = "PACELINE_SMTP_URL",
        value_name = "URL",
        hide_env_values = true
    )]
    pub smtp_url: Option<SecretUrl>,

    /// Whom these mails are from, such as `Paceline <paceline@example.com>`.
    #[arg(long, env = "PACELINE_MAIL_FROM", value_name = "ADDRESS")]
    pub mail_from: Option<String>,
}

impl MailConfig {
    /// The server, if there is one.
    pub fn mail(&self) -> Result<Option<Mail>, ConfigError> {
        let (url, from) = match (&self.smtp_url, &self.mail_from) {
            (None, None) => return Ok(None),
            (Some(url), Some(from)) => (url, from),
            (Some(_), None) => return Err(missing("mail-from", "--smtp-url")),
            (None, Some(_)) => return Err(missing("smtp-url", "--mail-from")),
        };
        let refused = |bad: BadMail| {
            let flag = match bad {
                BadMail::Url | BadMail::Clear => "smtp-url",
                BadMail::From => "mail-from",
            };
            ConfigError::flag(flag, bad.to_string())
        };
        Mail::new(url.expose(), from).map(Some).map_err(refused)
    }
}

fn missing(flag: &str, other: &str) -> ConfigError {
    ConfigError::flag(flag, format!("must be set, since {other} is"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn both_or_neither_and_no_password_in_an_error() {
        let config = |url: Option<&str>, from: Option<&str>| MailConfig {
            smtp_url: url.map(|url| url.parse().unwrap()),
            mail_from: from.map(str::to_owned),
        };
        let problem = |url, from| config(url, from).mail().err().map(|e| e.to_string());
        assert!(matches!(config(None, None).mail(), Ok(None)));
        let from = Some("p@example.com");
        assert_eq!(problem(Some("smtp://localhost"), from), None);
        for (url, from, named) in [
            (
                Some("smtp://localhost"),
                None,
                "--mail-from (PACELINE_MAIL_FROM)",
            ),
            (None, from, "--smtp-url (PACELINE_SMTP_URL)"),
            (
                Some("smtp://a:hunter2@mail"),
                from,
                "--smtp-url (PACELINE_SMTP_URL)",
            ),
            (Some("hunter2"), from, "--smtp-url (PACELINE_SMTP_URL)"),
            (
                Some("smtp://localhost"),
                Some("hunter2"),
                "--mail-from (PACELINE_MAIL_FROM)",
            ),
        ] {
            let problem = problem(url, from).unwrap();
            assert!(problem.starts_with(named), "{problem}");
            assert!(!problem.contains("hunter2"), "{problem}");
        }
        let shown = format!("{:?}", config(Some("smtps://a:hunter2@mail"), from));
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}
