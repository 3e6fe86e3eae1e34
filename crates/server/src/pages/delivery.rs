//! How a destination's requests are made, in the form that adds or changes it: whether
//! its receiver is asked first, what is tried again, and what goes together.

use std::str::FromStr;

use domain::batch::BatchSettings;
use domain::handshake::Handshake;
use domain::retry::RetrySettings;
use engine::ports::{Destination, RetryRules};

use super::edit::words;
use super::refused::Refused;
use super::typed::{self, Number, shown};
use super::visitor::Fields;
use crate::service::DeliveryDraft;

/// The field that says that the form has this part.
const PART: &str = "delivery";

const RETRIES: [(&str, &str); 6] = [
    ("timeout_ms", "time-out of a request, in ms"),
    ("max_tries", "tries, the first included"),
    ("base_ms", "at most before the first retry, in ms"),
    ("factor", "and each so many times longer"),
    ("cap_ms", "but never longer, in ms"),
    ("max_age_ms", "too old to start after, in ms"),
];

const BATCHES: [(&str, &str); 3] = [
    ("max_events", "events"),
    ("max_bytes", "bytes of payloads"),
    ("max_wait_ms", "wait for others, in ms"),
];

/// Those of it that are ticked or not.
pub(super) const BOXES: [&str; 2] = ["handshake", "pass_traceparent"];

/// What the form says of it.
pub(super) struct Form {
    pub(super) handshake: bool,
    pub(super) pass_traceparent: bool,
    pub(super) retries: Vec<Number>,
    pub(super) delays: String,
    pub(super) final_statuses: String,
    pub(super) batches: Vec<Number>,
    /// Something of it is said, so it is in sight.
    pub(super) is_said: bool,
}

impl Form {
    pub(super) fn of(fields: &Fields) -> Self {
        let numbers = RETRIES.into_iter().chain(BATCHES).map(|(name, _)| name);
        let mut texts = numbers.chain(["delays_ms", "final_statuses"]);
        let mut ticked = BOXES.into_iter();
        Self {
            handshake: fields.has("handshake"),
            pass_traceparent: fields.has("pass_traceparent"),
            retries: typed::numbers(fields, &RETRIES),
            delays: fields.text("delays_ms").to_owned(),
            final_statuses: fields.text("final_statuses").to_owned(),
            batches: typed::numbers(fields, &BATCHES),
            is_said: texts.any(|name| fields.get(name).is_some())
                || ticked.any(|name| fields.has(name)),
        }
    }
}

/// What this part of the form is filled with.
pub(super) fn values(
    destination: &Destination,
    rules: &RetryRules,
    batches: &BatchSettings,
) -> Vec<(&'static str, String)> {
    let policy = &rules.policy;
    let mut values = vec![
        ("timeout_ms", shown(policy.timeout_ms)),
        ("max_tries", shown(policy.max_tries)),
        ("base_ms", shown(policy.base_ms)),
        ("factor", shown(policy.factor)),
        ("cap_ms", shown(policy.cap_ms)),
        (
            "max_age_ms",
            shown(rules.max_age.map(|age| age.as_millis())),
        ),
        ("delays_ms", list(policy.delays_ms.as_deref())),
        ("final_statuses", list(policy.final_statuses.as_deref())),
        ("max_events", shown(batches.max_events)),
        ("max_bytes", shown(batches.max_bytes)),
        ("max_wait_ms", shown(batches.max_wait_ms)),
    ];
    let ticked = [
        ("handshake", destination.handshake != Handshake::None),
        ("pass_traceparent", destination.pass_traceparent),
    ];
    let ticked = ticked.into_iter().filter(|(_, is_so)| *is_so);
    values.extend(ticked.map(|(name, _)| (name, "yes".to_owned())));
    values
}

fn list(numbers: Option<&[impl ToString]>) -> String {
    let texts = numbers.unwrap_or_default().iter();
    texts.map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

/// All of it, as somebody wants it.
#[derive(Debug, Clone, Default)]
pub(super) struct Wanted {
    pub(super) handshake: Handshake,
    pub(super) pass_traceparent: bool,
    pub(super) draft: DeliveryDraft,
}

/// None of a form without this part, which says nothing of it. What makes no sense is
/// refused before anything of the form is done.
pub(super) fn wanted(fields: &Fields) -> Result<Option<Wanted>, Refused> {
    if !fields.has(PART) {
        return Ok(None);
    }
    let draft = DeliveryDraft {
        policy: RetrySettings {
            max_tries: typed::number(fields, "max_tries")?,
            delays_ms: numbers(fields, "delays_ms")?,
            base_ms: typed::number(fields, "base_ms")?,
            factor: typed::decimal(fields, "factor")?,
            cap_ms: typed::number(fields, "cap_ms")?,
            final_statuses: numbers(fields, "final_statuses")?,
            timeout_ms: typed::number(fields, "timeout_ms")?,
        },
        max_age_ms: typed::number(fields, "max_age_ms")?,
        batches: BatchSettings {
            max_events: typed::number(fields, "max_events")?,
            max_bytes: typed::number(fields, "max_bytes")?,
            max_wait_ms: typed::number(fields, "max_wait_ms")?,
        },
    };
    draft.clone().checked()?;
    Ok(Some(Wanted {
        handshake: match fields.has("handshake") {
            true => Handshake::CloudEvents,
            false => Handshake::None,
        },
        pass_traceparent: fields.has("pass_traceparent"),
        draft,
    }))
}

/// Between commas or spaces; none of an empty field.
fn numbers<T: FromStr>(fields: &Fields, name: &str) -> Result<Option<Vec<T>>, Refused> {
    let Some(text) = fields.get(name) else {
        return Ok(None);
    };
    let parsed = words(text).into_iter().map(|word| word.parse());
    let parsed: Result<Vec<T>, T::Err> = parsed.collect();
    let parsed = parsed.map_err(|_bad| {
        Refused::invalid(format!(
            "{name}: must be whole numbers, with spaces between"
        ))
    })?;
    Ok(Some(parsed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_without_this_part_says_nothing_of_it() {
        assert!(wanted(&Fields::default()).unwrap().is_none());
        let part = [(PART, "yes".to_owned())];
        let empty = wanted(&Fields::from(part)).unwrap().unwrap();
        assert_eq!(empty.draft, DeliveryDraft::default());
        assert!(!Form::of(&Fields::default()).is_said);
    }

    #[test]
    fn what_is_typed_is_what_is_wanted() {
        let fields = Fields::from([
            (PART, "yes".to_owned()),
            ("delays_ms", "1000, 60000".to_owned()),
            ("final_statuses", "404 410".to_owned()),
            ("timeout_ms", "5000".to_owned()),
            ("max_events", "20".to_owned()),
            ("handshake", "yes".to_owned()),
        ]);
        let wanted = wanted(&fields).unwrap().unwrap();
        let policy = &wanted.draft.policy;
        assert_eq!(policy.delays_ms, Some(vec![1_000, 60_000]));
        assert_eq!(policy.final_statuses, Some(vec![404, 410]));
        assert_eq!(policy.timeout_ms, Some(5_000));
        assert_eq!(wanted.draft.batches.max_events, Some(20));
        assert_eq!(wanted.handshake, Handshake::CloudEvents);
        assert!(Form::of(&fields).is_said);
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        for (name, text) in [
            ("delays_ms", "1 s"),
            ("delays_ms", "1 2 x"),
            ("final_statuses", "4040000"),
            ("factor", "much"),
            ("max_tries", "0"),
            ("timeout_ms", "99"),
            ("max_events", "501"),
        ] {
            let fields = Fields::from([(PART, "yes".to_owned()), (name, text.to_owned())]);
            let said = wanted(&fields).unwrap_err().said().unwrap();
            assert!(said.starts_with(&format!("{name}: ")), "{said}");
        }
    }
}
