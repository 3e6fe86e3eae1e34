//! A destination's retry policy, as its row holds it.

use domain::retry::RetrySettings;
use serde_json::{Map, Value, from_str, from_value};

/// For a start. One that makes no sense, which only a hand in the database can
/// have written, must not hold up a delivery: the default goes for it.
pub(crate) fn for_start(text: Option<&str>) -> RetrySettings {
    let Some(text) = text else {
        return RetrySettings::default();
    };
    parsed(text).unwrap_or_else(|problem| {
        tracing::error!(problem, "destinations.retry_policy makes no sense");
        RetrySettings::default()
    })
}

/// For its owner, who has to know.
pub(crate) fn parsed(text: &str) -> Result<RetrySettings, String> {
    // By names: an array would be read by position.
    let fields: Map<String, Value> = from_str(text).map_err(|error| error.to_string())?;
    let settings: RetrySettings = from_value(fields.into()).map_err(|error| error.to_string())?;
    settings.validate().map_err(|error| error.to_string())?;
    Ok(settings)
}

/// As the row holds it: nothing for the default.
pub(crate) fn written(settings: &RetrySettings) -> Option<String> {
    let text = || serde_json::to_string(settings).ok();
    (!settings.is_default()).then(text).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_nonsense_is_the_default() {
        let settings = RetrySettings {
            max_tries: Some(3),
            factor: Some(1.5),
            final_statuses: Some(vec![404]),
            ..RetrySettings::default()
        };
        let text = written(&settings).unwrap();
        assert_eq!(parsed(&text), Ok(settings.clone()));
        assert_eq!(for_start(Some(&text)), settings);
        assert_eq!(written(&RetrySettings::default()), None);
        for nonsense in ["", "[]", "{\"max_tries\": 0}", "{\"retries\": 1}"] {
            assert_eq!(for_start(Some(nonsense)), RetrySettings::default());
            assert!(parsed(nonsense).is_err(), "{nonsense}");
        }
    }
}
