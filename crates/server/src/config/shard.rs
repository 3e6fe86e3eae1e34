//! Which of several shards a process is of, and, for the router, all of them.

use std::path::PathBuf;
use std::str::FromStr;

use clap::builder::BoolishValueParser;
use clap::{ArgAction, Args};
use domain::shard::ShardName;
use secrecy::SecretString;
use url::Url;

use super::{ConfigError, QueueConfig, ScheduleConfig};

/// Where tenants are divided among several installations.
#[derive(Debug, Clone, Default, Args)]
pub struct ShardConfig {
    /// The shard that this process is of, where there are several: 1 to 16 lower-case
    /// letters and digits. Its keys, links and cookies name it, and so do its Redis keys
    /// and queues; the same in every process of the shard.
    #[arg(long, env = "PACELINE_SHARD_NAME", value_name = "NAME")]
    pub shard_name: Option<ShardName>,
}

impl ShardConfig {
    /// Names of its own for what may be in one Redis with other shards'.
    #[must_use]
    pub fn schedule(&self, config: ScheduleConfig) -> ScheduleConfig {
        ScheduleConfig {
            schedule_prefix: self.own(config.schedule_prefix),
            ..config
        }
    }

    /// The same in one RabbitMQ.
    #[must_use]
    pub fn queue(&self, config: QueueConfig) -> QueueConfig {
        QueueConfig {
            queue_name: self.own(config.queue_name),
            ..config
        }
    }

    fn own(&self, text: String) -> String {
        match &self.shard_name {
            Some(shard) => shard.of(&text),
            None => text,
        }
    }
}

/// A shard as the router knows it: `NAME=URL`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardAddress {
    pub name: ShardName,
    /// Where its API is.
    pub url: Url,
}

impl FromStr for ShardAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, url) = (text.split_once('='))
            .ok_or("expected NAME=URL, such as a=https://api-a.example:8080")?;
        Ok(Self {
            name: name
                .trim()
                .parse()
                .map_err(|error| format!("{name}: {error}"))?,
            url: url
                .trim()
                .parse()
                .map_err(|error| format!("{name}: {error}"))?,
        })
    }
}

/// The most shards.
pub const MAX_SHARDS: usize = 64;

/// What stands before several shards.
#[derive(Debug, Clone, Args)]
pub struct RouterConfig {
    /// All shards, as NAME=URL of the API of each. The first one is asked about what
    /// names none, such as a key from before there were several.
    #[arg(long, env = "PACELINE_SHARDS", value_name = "NAME=URL")]
    #[arg(value_delimiter = ',')]
    pub shards: Vec<ShardAddress>,

    /// The shards that take new tenants; left out, all of them.
    #[arg(long, env = "PACELINE_NEW_TENANTS_ON", value_name = "NAME")]
    #[arg(value_delimiter = ',')]
    pub new_tenants_on: Vec<ShardName>,

    /// The key that every shard's API is started with: the router asks by it where a
    /// tenant is.
    #[arg(
        long,
        env = "PACELINE_API_KEY",
        value_name = "KEY",
        hide_env_values = true
    )]
    pub api_key: Option<SecretString>,

    /// Certificates of authorities to trust beside those that this host trusts, in PEM.
    #[arg(long, env = "PACELINE_CA_FILE", value_name = "FILE")]
    pub ca_file: Option<PathBuf>,

    /// Send keys in clear to another machine, to an http:// URL of a shard: where nobody
    /// else is on the network between.
    #[arg(long, env = "PACELINE_INSECURE_HTTP", value_name = "BOOL", action = ArgAction::Set)]
    #[arg(default_value = "false", default_missing_value = "true", num_args = 0..=1)]
    #[arg(value_parser = BoolishValueParser::new())]
    pub insecure_http: bool,
}

impl RouterConfig {
    /// Refuses shards that cannot be told apart, and names that none has.
    pub fn check(&self) -> Result<(), ConfigError> {
        let shards = &self.shards;
        if shards.is_empty() {
            let problem = "name one or more, such as a=https://api-a.example:8080";
            return Err(ConfigError::flag("shards", problem));
        }
        if shards.len() > MAX_SHARDS {
            let problem = format!("names {} shards; {MAX_SHARDS} are the most", shards.len());
            return Err(ConfigError::flag("shards", problem));
        }
        for (at, one) in shards.iter().enumerate() {
            let before = shards.iter().take(at);
            let mut before = before.filter(|other| other.name == one.name || other.url == one.url);
            if let Some(other) = before.next() {
                let problem = format!("{} and {} have one name or one URL", other.name, one.name);
                return Err(ConfigError::flag("shards", problem));
            }
        }
        let is_known = |name: &&ShardName| shards.iter().any(|one| one.name == **name);
        match self.new_tenants_on.iter().find(|name| !is_known(name)) {
            Some(name) => Err(ConfigError::flag(
                "new-tenants-on",
                format!("{name} is not among the shards of --shards (PACELINE_SHARDS)"),
            )),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn router(shards: &str, open: &str) -> Result<(), String> {
        let addresses = shards.split(' ').map(|one| one.parse().unwrap());
        let config = RouterConfig {
            shards: addresses.collect(),
            new_tenants_on: open
                .split_whitespace()
                .map(|one| one.parse().unwrap())
                .collect(),
            api_key: None,
            ca_file: None,
            insecure_http: false,
        };
        config.check().map_err(|error| error.to_string())
    }

    #[test]
    fn shards_can_be_told_apart() {
        assert_eq!(router("a=http://x b=http://y", "b"), Ok(()));
        let refused = |shards, open| router(shards, open).unwrap_err();
        let twice = refused("a=http://x a=http://y", "");
        assert!(twice.contains("PACELINE_SHARDS"), "{twice}");
        let same = refused("a=http://x b=http://x", "");
        assert!(same.contains("a and b have one name or one URL"), "{same}");
        let stranger = refused("a=http://x", "c");
        assert!(stranger.contains("PACELINE_NEW_TENANTS_ON"), "{stranger}");
    }

    #[test]
    fn what_is_no_address_of_a_shard_is_refused_by_its_name() {
        for (text, problem) in [
            ("http://x", "expected NAME=URL"),
            ("A=http://x", "not a shard's name"),
            ("a=x", "a: relative URL"),
        ] {
            let refused = text.parse::<ShardAddress>().unwrap_err();
            assert!(refused.contains(problem), "{refused}");
        }
    }

    #[test]
    fn a_shard_has_names_of_its_own_for_what_it_shares() {
        let shard = ShardConfig {
            shard_name: "b".parse().ok(),
        };
        assert_eq!(
            shard.own("paceline.deliveries".to_owned()),
            "paceline.deliveries.b"
        );
        assert_eq!(
            ShardConfig::default().own("paceline".to_owned()),
            "paceline"
        );
    }
}
