//! Which destinations have metrics of their own.

use clap::Args;
use domain::ids::DestinationId;
use engine::ports::MAX_SURVEYED;
use engine::survey::SurveyOptions;

/// Which destinations are shown one by one on `/metrics`. Each costs some ten
/// series, and a closer look every ten seconds.
#[derive(Debug, Clone, Args)]
pub struct ShownConfig {
    /// How many destinations have metrics of their own: those with the longest
    /// backlogs.
    #[arg(long, env = "PACELINE_METRICS_TOP", value_name = "N")]
    #[arg(default_value_t = 20, value_parser = clap::value_parser!(u16).range(0..=100))]
    pub metrics_top: u16,

    /// Destinations that have some in any case: up to 100 ids, separated by
    /// commas.
    #[arg(long, env = "PACELINE_METRICS_DESTINATIONS", value_name = "ID")]
    #[arg(value_delimiter = ',', num_args = 0..=100)]
    pub metrics_destinations: Vec<DestinationId>,
}

impl ShownConfig {
    /// The survey's options.
    #[must_use]
    pub fn options(&self) -> SurveyOptions {
        let mut asked = self.metrics_destinations.clone();
        asked.truncate(MAX_SURVEYED - usize::from(self.metrics_top));
        SurveyOptions {
            top: usize::from(self.metrics_top),
            asked,
            ..SurveyOptions::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        shown: ShownConfig,
    }

    fn parse(arguments: &[&str]) -> Result<SurveyOptions, String> {
        let all = ["paceline"].iter().chain(arguments);
        let parsed = Cli::try_parse_from(all).map_err(|error| error.to_string());
        parsed.map(|cli| cli.shown.options())
    }

    #[test]
    fn the_defaults_are_the_surveys() {
        assert_eq!(parse(&[]), Ok(SurveyOptions::default()));
    }

    #[test]
    fn some_are_asked_for_by_id() {
        let ids = [1, 2].map(|number| DestinationId(uuid::Uuid::from_u128(number)));
        let list = format!("--metrics-destinations={},{}", ids[0], ids[1]);
        let options = parse(&["--metrics-top=3", &list]).expect("both are allowed");
        assert_eq!((options.top, &options.asked[..]), (3, &ids[..]));
    }

    #[test]
    fn a_refusal_names_the_flag() {
        for flag in ["--metrics-top", "--metrics-destinations"] {
            let refused = parse(&[&format!("{flag}=many")]).expect_err("it is no number");
            assert!(refused.contains(flag), "{refused}");
        }
    }
}
