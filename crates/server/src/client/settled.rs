//! What flags, variables and a profile come to: the first two win.
//!
//! A profile's key is for the profile's API. It goes nowhere else, whatever `--url`
//! says.

use std::path::PathBuf;

use domain::shard::ShardName;
use secrecy::SecretString;
use url::Url;

use super::ClientConfig;
use super::wire::Place;
use crate::config::ConfigError;
use crate::profile::{self, Profile, Profiles};

/// Where `paceline serve` listens, unless it is told.
const LOCAL: &str = "http://127.0.0.1:8080";

/// Where the API is, and who asks.
#[derive(Debug, Clone)]
pub(super) struct Settled {
    pub(super) url: Url,
    /// `None` for this machine's own.
    pub(super) api_key: Option<SecretString>,
    pub(super) tenant: Option<String>,
    pub(super) shard: Option<ShardName>,
    pub(super) ca_file: Option<PathBuf>,
    pub(super) insecure_http: bool,
    /// The profile that the key is of.
    pub(super) profile: Option<String>,
}

impl Settled {
    /// Where the API is.
    pub(super) fn place(&self) -> Place {
        Place {
            url: self.url.clone(),
            ca_file: self.ca_file.clone(),
            insecure_http: self.insecure_http,
        }
    }

    /// By this user's profiles, if one is meant.
    pub(super) fn of(config: &ClientConfig) -> anyhow::Result<Self> {
        // Whoever says where to, or who they are, means no profile but one they name.
        if config.profile.is_none() && (config.url.is_some() || config.api_key.is_some()) {
            return Ok(Self::by(config, None)?);
        }
        let profiles = match &config.profile {
            Some(_) => Some(Profiles::required()?),
            None => Profiles::of_user()?,
        };
        let name = config.profile.as_deref();
        let profile = match (&profiles, name) {
            (Some(profiles), Some(name)) => Some(profiles.named(name)?),
            (Some(profiles), None) => profiles.find(profile::DEFAULT),
            (None, _) => None,
        };
        let name = name.unwrap_or(profile::DEFAULT);
        Ok(Self::by(config, profile.map(|profile| (name, profile)))?)
    }

    pub(super) fn by(
        config: &ClientConfig,
        profile: Option<(&str, &Profile)>,
    ) -> Result<Self, ConfigError> {
        let said = config.url.clone();
        let Some((name, profile)) = profile else {
            return Ok(Self {
                url: match said {
                    Some(url) => url,
                    None => local()?,
                },
                api_key: config.api_key.clone(),
                tenant: config.tenant.clone(),
                shard: config.shard.clone(),
                ca_file: config.ca_file.clone(),
                insecure_http: config.insecure_http,
                profile: None,
            });
        };
        let elsewhere = said.as_ref().is_some_and(|url| *url != profile.url);
        if elsewhere && config.api_key.is_none() {
            let url = &profile.url;
            let problem = format!(
                "the key of the profile {name} is for {url}: leave this out, or give the key \
                 as well, by --api-key (PACELINE_API_KEY)"
            );
            return Err(ConfigError::flag("url", problem));
        }
        let its_key = config.api_key.is_none();
        Ok(Self {
            url: said.unwrap_or_else(|| profile.url.clone()),
            api_key: (config.api_key.clone()).or_else(|| Some(profile.api_key.clone())),
            tenant: config.tenant.clone().or_else(|| profile.tenant.clone()),
            shard: config.shard.clone(),
            ca_file: config.ca_file.clone().or_else(|| profile.ca_file.clone()),
            insecure_http: config.insecure_http || (profile.insecure_http && !elsewhere),
            profile: its_key.then(|| name.to_owned()),
        })
    }
}

/// The API on this machine.
pub(super) fn local() -> Result<Url, ConfigError> {
    Url::parse(LOCAL).map_err(|error| ConfigError::flag("url", error.to_string()))
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret;

    use super::*;

    fn config() -> ClientConfig {
        ClientConfig {
            profile: None,
            url: None,
            api_key: None,
            tenant: None,
            shard: None,
            ca_file: None,
            insecure_http: false,
        }
    }

    fn profile() -> Profile {
        Profile {
            url: Url::parse("https://a.example").unwrap(),
            api_key: SecretString::from("theirs"),
            tenant: Some("shop".to_owned()),
            ca_file: Some("/a.pem".into()),
            insecure_http: true,
        }
    }

    fn key(settled: &Settled) -> &str {
        settled
            .api_key
            .as_ref()
            .map_or("", |key| key.expose_secret())
    }

    #[test]
    fn a_profile_fills_in_what_is_not_said() {
        let settled = Settled::by(&config(), Some(("a", &profile()))).unwrap();
        assert_eq!(
            (settled.url.as_str(), key(&settled)),
            ("https://a.example/", "theirs")
        );
        assert_eq!(settled.tenant.as_deref(), Some("shop"));
        assert_eq!(settled.ca_file, Some("/a.pem".into()));
        assert!(settled.insecure_http);
        assert_eq!(settled.profile.as_deref(), Some("a"));
        let none = Settled::by(&config(), None).unwrap();
        assert_eq!(none.url.as_str(), "http://127.0.0.1:8080/");
        assert!(none.api_key.is_none());
    }

    #[test]
    fn what_is_said_wins() {
        let said = ClientConfig {
            api_key: Some(SecretString::from("mine")),
            tenant: Some("other".to_owned()),
            ca_file: Some("/b.pem".into()),
            ..config()
        };
        let settled = Settled::by(&said, Some(("a", &profile()))).unwrap();
        assert_eq!(
            (settled.url.as_str(), key(&settled)),
            ("https://a.example/", "mine")
        );
        assert_eq!(settled.tenant.as_deref(), Some("other"));
        assert_eq!(settled.ca_file, Some("/b.pem".into()));
        assert_eq!(settled.profile, None);
    }

    #[test]
    fn a_profiles_key_goes_to_its_own_api_alone() {
        let elsewhere = ClientConfig {
            url: Some(Url::parse("http://b.example").unwrap()),
            ..config()
        };
        let refused = Settled::by(&elsewhere, Some(("a", &profile()))).unwrap_err();
        let says = "the key of the profile a is for https://a.example/";
        assert!(refused.problem.starts_with(says), "{refused}");
        let with_key = ClientConfig {
            api_key: Some(SecretString::from("mine")),
            ..elsewhere
        };
        let settled = Settled::by(&with_key, Some(("a", &profile()))).unwrap();
        assert_eq!(
            (settled.url.as_str(), key(&settled)),
            ("http://b.example/", "mine")
        );
        assert!(!settled.insecure_http, "that was said of another network");
        let same = ClientConfig {
            url: Some(Url::parse("https://a.example/").unwrap()),
            ..config()
        };
        let settled = Settled::by(&same, Some(("a", &profile()))).unwrap();
        assert_eq!(key(&settled), "theirs");
    }
}
