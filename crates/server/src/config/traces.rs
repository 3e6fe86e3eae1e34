//! Whether traces are recorded, and where they go.
//!
//! The variables are OpenTelemetry's own, so that what sets them for other
//! programs sets them for this one.

use adapters::otlp::OtlpOptions;
use clap::{Args, ValueEnum};
use engine::traced::Share;
use secrecy::{ExposeSecret, SecretString};
use url::Url;

use super::{ConfigError, SecretUrl};

/// Where traces go. Without an endpoint nothing is traced, and nothing of it
/// costs anything.
#[derive(Debug, Clone, Args)]
pub struct TracesConfig {
    /// Where traces go: a collector that takes OTLP over HTTP, such as
    /// `http://collector:4318`. Without one there are none.
    #[arg(
        long,
        env = "OTEL_EXPORTER_OTLP_ENDPOINT",
        value_name = "URL",
        hide_env_values = true
    )]
    pub otlp_endpoint: Option<SecretUrl>,

    /// Headers for the collector, as `NAME=VALUE` separated by commas.
    #[arg(
        long,
        env = "OTEL_EXPORTER_OTLP_HEADERS",
        value_name = "HEADERS",
        hide_env_values = true
    )]
    pub otlp_headers: Option<SecretString>,

    /// What this installation is called in traces.
    #[arg(long, env = "OTEL_SERVICE_NAME", value_name = "NAME")]
    #[arg(default_value = "paceline")]
    pub otlp_service: String,

    /// Who decides what is traced: always those who send an event that is of a
    /// trace; of others the part that `--trace-share` says, all, or none.
    #[arg(long, env = "OTEL_TRACES_SAMPLER", value_name = "SAMPLER")]
    #[arg(default_value = "parentbased_traceidratio")]
    pub trace_sampler: Sampler,

    /// The part of the events without a trace of their own that is traced, from
    /// 0 to 1; of others, those who send them decide.
    #[arg(long, env = "OTEL_TRACES_SAMPLER_ARG", value_name = "PART")]
    #[arg(default_value = "1", value_parser = share)]
    pub trace_share: Share,
}

/// OpenTelemetry's names. Those that overrule who sent the event are none of
/// ours: half a trace helps nobody.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Sampler {
    /// The part that is given beside it.
    #[value(name = "parentbased_traceidratio")]
    Ratio,
    /// All.
    #[value(name = "parentbased_always_on")]
    All,
    /// None.
    #[value(name = "parentbased_always_off")]
    None,
}

fn share(text: &str) -> Result<Share, String> {
    let share = text.parse().ok().and_then(Share::new);
    share.ok_or_else(|| "must be from 0 to 1".to_owned())
}

impl TracesConfig {
    /// What sends them; `None` if nothing does.
    pub fn otlp(&self, role: &'static str) -> Result<Option<OtlpOptions>, ConfigError> {
        let Some(endpoint) = &self.otlp_endpoint else {
            return Ok(None);
        };
        let endpoint =
            Url::parse(endpoint.expose()).map_err(|error| Self::refused(&error.to_string()))?;
        Ok(Some(OtlpOptions {
            endpoint,
            headers: self.headers()?,
            service: self.otlp_service.clone(),
            role,
            version: env!("CARGO_PKG_VERSION"),
        }))
    }

    /// The part that is recorded of what nobody else decides.
    #[must_use]
    pub fn share(&self) -> Share {
        match self.trace_sampler {
            Sampler::Ratio => self.trace_share,
            Sampler::All => Share::ALL,
            Sampler::None => Share::new(0.0).expect("nothing is a part"),
        }
    }

    /// A problem with the endpoint.
    #[must_use]
    pub fn refused(problem: &str) -> ConfigError {
        ConfigError {
            name: "--otlp-endpoint (OTEL_EXPORTER_OTLP_ENDPOINT)".to_owned(),
            problem: problem.to_owned(),
        }
    }

    /// Errors do not show the values: they are secrets.
    fn headers(&self) -> Result<Vec<(String, String)>, ConfigError> {
        let text = self.otlp_headers.as_ref().map(ExposeSecret::expose_secret);
        let parts = text.unwrap_or_default().split(',').map(str::trim);
        let header = |part: &str| match part.split_once('=') {
            Some((name, value)) if !name.trim().is_empty() => {
                Ok((name.trim().to_owned(), value.trim().to_owned()))
            }
            _ => Err(ConfigError {
                name: "--otlp-headers (OTEL_EXPORTER_OTLP_HEADERS)".to_owned(),
                problem: "must be NAME=VALUE, separated by commas".to_owned(),
            }),
        };
        parts.filter(|part| !part.is_empty()).map(header).collect()
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        traces: TracesConfig,
    }

    fn parse(arguments: &[&str]) -> Result<TracesConfig, String> {
        let all = ["paceline"].iter().chain(arguments);
        let parsed = Cli::try_parse_from(all).map_err(|error| error.to_string());
        parsed.map(|cli| cli.traces)
    }

    #[test]
    fn there_are_none_without_a_collector() {
        let none = parse(&["--otlp-headers=a=1"]).expect("it is allowed");
        assert!(none.otlp("serve").expect("nothing is wrong").is_none());
    }

    #[test]
    fn headers_are_pairs_and_never_shown() {
        let endpoint = "--otlp-endpoint=http://ann:canary-1@collector:4318?x=canary-2";
        let some = parse(&[endpoint, "--otlp-headers= api-key=canary-3 ,b=x=y"]).expect("good");
        let options = some
            .otlp("serve")
            .expect("good")
            .expect("there is an endpoint");
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(
            options.headers,
            [pair("api-key", "canary-3"), pair("b", "x=y")]
        );
        let shown = format!("{some:?}");
        assert!(
            shown.contains("paceline") && !shown.contains("canary"),
            "{shown}"
        );
        let bad = parse(&[endpoint, "--otlp-headers=canary-4"]).expect("read later");
        let refused = bad.otlp("serve").expect_err("no pair").to_string();
        assert!(refused.contains("OTEL_EXPORTER_OTLP_HEADERS"), "{refused}");
        assert!(!refused.contains("canary"), "{refused}");
    }

    #[test]
    fn a_sampler_is_one_that_leaves_it_to_who_sends() {
        let share = |arguments: &[&str]| parse(arguments).expect("good").share();
        let [half, nothing] = [0.5, 0.0].map(|part| Share::new(part).expect("a part"));
        assert_eq!(share(&[]), Share::ALL);
        assert_eq!(share(&["--trace-share=0.5"]), half);
        for (sampler, recorded) in [
            ("parentbased_traceidratio", half),
            ("parentbased_always_on", Share::ALL),
            ("parentbased_always_off", nothing),
        ] {
            let sampler = format!("--trace-sampler={sampler}");
            assert_eq!(share(&[&sampler, "--trace-share=0.5"]), recorded);
        }
        for bad in [
            "always_on",
            "always_off",
            "traceidratio",
            "jaeger_remote",
            "",
        ] {
            let refused = parse(&[&format!("--trace-sampler={bad}")]).expect_err("none of ours");
            assert!(refused.contains("parentbased_traceidratio"), "{refused}");
        }
    }

    #[test]
    fn a_share_is_a_part() {
        assert_eq!(parse(&[]).expect("defaults").trace_share, Share::ALL);
        for bad in ["1.5", "-0.1", "all", "NaN"] {
            let refused = parse(&[&format!("--trace-share={bad}")]).expect_err("no part");
            assert!(refused.contains("from 0 to 1"), "{refused}");
        }
    }
}
