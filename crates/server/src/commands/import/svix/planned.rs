//! What an application and an endpoint become, and what of them does not go along. Decides,
//! and asks nobody.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context;
use domain::event_types::{MAX_DESCRIPTION_BYTES, example_problem, schema_problem};
use domain::external_id::ExternalId;
use domain::header::CustomHeaders;
use domain::limit_group::{GroupLimits, MAX_MEMBERS};
use domain::signature::SigningSecret;
use serde_json::Value;
use zeroize::Zeroizing;

use super::source::{Application, Endpoint, EventType, Headers};
use crate::hidden::Hidden;
use crate::service::rules::MAX_NAME_BYTES;

/// What the limit group of an application's endpoints is called.
pub(super) const GROUP: &str = "application";

/// Every type.
const ALL_TYPES: &str = "*";

/// What a secret begins with, which Svix may leave out.
const SECRET_PREFIX: &str = "whsec_";

/// What Svix gives out of an ed25519 secret.
const PUBLIC_PREFIX: &str = "whpk_";

/// A tenant to be.
#[derive(Debug)]
pub(super) struct Tenant {
    pub(super) external_id: ExternalId,
    pub(super) name: String,
    /// What its endpoints may be sent together.
    pub(super) per_second: Option<u32>,
    /// What is not taken over.
    pub(super) left: Vec<String>,
}

impl Tenant {
    pub(super) fn of(application: &Application) -> anyhow::Result<Self> {
        let mut left = Vec::new();
        let external_id = called(&application.id, application.uid.as_deref(), &mut left)?;
        let rate = application.throttle_rate.or(application.rate_limit);
        left.extend(metadata(application.metadata.keys()));
        let name = for_people(&application.name);
        Ok(Self {
            // A tenant must have one.
            name: match name.trim() {
                "" => external_id.to_string(),
                _ => name,
            },
            external_id,
            // A limit of nothing is none there, and a pause here.
            per_second: rate.filter(|rate| *rate > 0),
            left,
        })
    }

    /// What all of its endpoints, so many, may have together: a limit group of theirs.
    pub(super) fn group(&mut self, endpoints: usize) -> Option<GroupLimits> {
        let rate = self.per_second?;
        let limits = GroupLimits {
            per_second: Some(rate),
            ..GroupLimits::default()
        };
        let problem = match limits.validate() {
            Err(problem) => problem.problem,
            Ok(()) if endpoints > MAX_MEMBERS as usize => {
                format!("it has {endpoints} endpoints, and a limit group at most {MAX_MEMBERS}")
            }
            Ok(()) => return Some(limits),
        };
        self.left
            .push(format!("its rate limit, {rate}/s: {problem}"));
        None
    }
}

/// A destination to be.
#[derive(Debug)]
pub(super) struct Destination {
    pub(super) external_id: ExternalId,
    pub(super) url: String,
    pub(super) name: String,
    /// In their order, each once.
    pub(super) event_types: Vec<String>,
    pub(super) per_second: Option<u32>,
    /// It shares the limit of its application.
    pub(super) in_group: bool,
    /// It is at Svix.
    pub(super) disabled: bool,
    /// It would get what it does not get from Svix: somebody has to look first.
    pub(super) differs: bool,
    pub(super) headers: BTreeMap<String, Hidden>,
    /// What is not taken over.
    pub(super) left: Vec<String>,
}

impl Destination {
    pub(super) fn of(
        endpoint: &Endpoint,
        headers: Headers,
        transformed: bool,
    ) -> anyhow::Result<Self> {
        let mut left = Vec::new();
        let external_id = called(&endpoint.id, endpoint.uid.as_deref(), &mut left)?;
        let channels = endpoint.channels.as_deref().unwrap_or_default();
        if !channels.is_empty() {
            let channels = channels.join(", ");
            left.push(format!("its channels {channels}: there are none here"));
        }
        if transformed {
            left.push("its transformation: payloads go out as they came in".to_owned());
        }
        left.extend(metadata(endpoint.metadata.keys()));
        // Svix lists them in whatever order.
        let types = endpoint.event_types.as_ref();
        let types = types.or(endpoint.filter_types.as_ref()).into_iter();
        let types: BTreeSet<String> = types.flatten().cloned().collect();
        Ok(Self {
            external_id,
            url: endpoint.url.clone(),
            name: for_people(&endpoint.description),
            event_types: match types.is_empty() {
                true => vec![ALL_TYPES.to_owned()],
                false => types.into_iter().collect(),
            },
            // A limit of nothing is none there, and a pause here.
            per_second: (endpoint.throttle_rate.or(endpoint.rate_limit)).filter(|rate| *rate > 0),
            in_group: false,
            disabled: endpoint.disabled == Some(true),
            differs: transformed || !channels.is_empty(),
            headers: allowed(headers, &mut left),
            left,
        })
    }

    /// Whether it begins disabled.
    pub(super) const fn begins_disabled(&self) -> bool {
        self.disabled || self.differs
    }
}

/// A type of the catalogue to be.
#[derive(Debug)]
pub(super) struct Type {
    pub(super) name: String,
    pub(super) description: String,
    /// The newest that Svix has.
    pub(super) schema: Option<Value>,
    /// The first in that schema.
    pub(super) example: Option<Value>,
    pub(super) archived: bool,
    /// What is not taken over.
    pub(super) left: Vec<String>,
}

impl Type {
    pub(super) fn of(one: &EventType) -> Self {
        let mut left = Vec::new();
        if let Some(flag) = &one.feature_flag {
            left.push(format!(
                "its feature flag {flag}: whoever subscribes gets it"
            ));
        }
        if one.deprecated == Some(true) {
            left.push("that it is deprecated: here it is archived or not".to_owned());
        }
        // Versions are numbers.
        let mut schemas: Vec<_> = one.schemas.iter().flatten().collect();
        schemas.sort_by_key(|(version, _)| (version.parse::<u64>().ok(), *version));
        let newest = schemas.pop().map(|(_, schema)| schema);
        if !schemas.is_empty() {
            let older: Vec<&str> = schemas
                .iter()
                .map(|(version, _)| version.as_str())
                .collect();
            let older = older.join(", ");
            left.push(format!(
                "its schemas of versions {older}: there is one here"
            ));
        }
        let example = newest.and_then(|schema| schema.get("examples")?.get(0));
        Self {
            name: one.name.clone(),
            description: in_one_line(&one.description, MAX_DESCRIPTION_BYTES),
            schema: as_taken("schema", newest, schema_problem, &mut left),
            example: as_taken("example", example, example_problem, &mut left),
            archived: one.archived == Some(true),
            left,
        }
    }
}

/// What the catalogue takes.
fn as_taken(
    what: &str,
    json: Option<&Value>,
    problem: fn(&str) -> Option<&'static str>,
    left: &mut Vec<String>,
) -> Option<Value> {
    let json = json.filter(|json| !json.is_null())?;
    match problem(&json.to_string()) {
        None => Some(json.clone()),
        Some(problem) => {
            left.push(format!("its {what}: {problem}"));
            None
        }
    }
}

/// The secret, if it is one that signs.
pub(super) fn secret(given: Hidden) -> anyhow::Result<Hidden> {
    let text = given.expose();
    anyhow::ensure!(
        !text.starts_with(PUBLIC_PREFIX),
        "its secret: Svix gives out the public key of an ed25519 secret only; give the endpoint \
         a symmetric secret there, or create the destination with a secret of its own"
    );
    let whole = match text.starts_with("whs") {
        true => given.clone(),
        false => Hidden::new(Zeroizing::new(format!("{SECRET_PREFIX}{text}"))),
    };
    SigningSecret::parse(whole.expose()).context("its secret")?;
    Ok(whole)
}

/// Its uid, or its id where it has none that will do.
fn called(id: &str, uid: Option<&str>, left: &mut Vec<String>) -> anyhow::Result<ExternalId> {
    match uid.map(str::parse) {
        Some(Ok(uid)) => return Ok(uid),
        Some(Err(problem)) => {
            let uid = uid.unwrap_or_default();
            left.push(format!("its uid {uid}: {problem}; its id stands for it"));
        }
        None => {}
    }
    id.parse().with_context(|| format!("its id {id}"))
}

/// As a name may be: one line, not too long.
fn for_people(text: &str) -> String {
    in_one_line(text, MAX_NAME_BYTES)
}

fn in_one_line(text: &str, most: usize) -> String {
    let mut name = String::new();
    for letter in text.chars() {
        let letter = if letter.is_control() { ' ' } else { letter };
        if name.len() + letter.len_utf8() > most {
            break;
        }
        name.push(letter);
    }
    name
}

/// Without values: nobody knows what they are.
fn metadata<'a>(keys: impl Iterator<Item = &'a String>) -> Option<String> {
    let keys: Vec<&str> = keys.map(String::as_str).collect();
    (!keys.is_empty()).then(|| format!("its metadata: {}", keys.join(", ")))
}

/// Those that can be set here.
fn allowed(given: Headers, left: &mut Vec<String>) -> BTreeMap<String, Hidden> {
    for name in &given.sensitive {
        left.push(format!(
            "its header {name}: Svix does not give its value; `paceline destination update \
             --header` sets it, with all others"
        ));
    }
    let mut allowed = BTreeMap::new();
    for (name, value) in given.headers {
        let one = (name.clone(), value.clone().into_inner());
        match CustomHeaders::new([one]) {
            Ok(_) => {
                allowed.insert(name.to_ascii_lowercase(), value);
            }
            Err(problem) => left.push(format!("its header {name}: {problem}")),
        }
    }
    allowed
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn endpoint() -> Endpoint {
        Endpoint {
            id: "ep_1".to_owned(),
            url: "https://a.example/".to_owned(),
            ..Endpoint::default()
        }
    }

    fn planned(endpoint: &Endpoint) -> Destination {
        Destination::of(endpoint, Headers::default(), false).unwrap()
    }

    #[test]
    fn a_uid_stands_for_an_id_where_it_can() {
        for (uid, called) in [
            (None, "ep_1"),
            (Some("shop-7"), "shop-7"),
            (Some("0192f3c4-0000-7000-8000-000000000001"), "ep_1"),
        ] {
            let endpoint = Endpoint {
                uid: uid.map(str::to_owned),
                ..endpoint()
            };
            let planned = planned(&endpoint);
            assert_eq!(planned.external_id.as_str(), called);
            let is_told = uid.is_some_and(|uid| uid != called);
            assert_eq!(planned.left.len(), usize::from(is_told), "{planned:?}");
        }
    }

    #[test]
    fn no_types_are_all_types_and_no_rate_is_the_tiers() {
        let plain = planned(&endpoint());
        assert_eq!(plain.event_types, ["*"]);
        assert_eq!((plain.per_second, plain.begins_disabled()), (None, false));
        for (throttle_rate, rate_limit, per_second) in [
            (Some(5), Some(9), Some(5)),
            (None, Some(9), Some(9)),
            (Some(0), None, None),
        ] {
            let endpoint = Endpoint {
                throttle_rate,
                rate_limit,
                filter_types: Some(["b", "a.b", "b"].map(str::to_owned).into()),
                ..endpoint()
            };
            let planned = planned(&endpoint);
            assert_eq!(planned.per_second, per_second);
            assert_eq!(planned.event_types, ["a.b", "b"]);
        }
    }

    #[test]
    fn types_are_taken_by_their_former_name_too() {
        let named = |types: Option<[&str; 1]>| -> Option<Vec<String>> {
            Some(types?.map(str::to_owned).into())
        };
        for (event_types, filter_types, expected) in [
            (Some(["a"]), Some(["b"]), "a"),
            (Some(["a"]), None, "a"),
            (None, Some(["b"]), "b"),
            (None, None, "*"),
        ] {
            let endpoint = Endpoint {
                event_types: named(event_types),
                filter_types: named(filter_types),
                ..endpoint()
            };
            assert_eq!(planned(&endpoint).event_types, [expected]);
        }
    }

    #[test]
    fn the_limit_of_an_application_is_a_group_where_a_group_can_have_it() {
        let group = |rate: Option<u32>, endpoints| {
            let application = Application {
                id: "app_1".to_owned(),
                rate_limit: rate,
                ..Application::default()
            };
            let mut planned = Tenant::of(&application).unwrap();
            let group = planned.group(endpoints);
            (group.and_then(|group| group.per_second), planned.left.len())
        };
        assert_eq!(group(Some(50), 100), (Some(50), 0));
        assert_eq!(group(Some(50), 101), (None, 1));
        assert_eq!(group(Some(2_001), 1), (None, 1));
        assert_eq!(group(Some(0), 1), (None, 0));
        assert_eq!(group(None, 1), (None, 0));
    }

    #[test]
    fn what_would_get_other_things_than_from_svix_begins_disabled() {
        let channels = Endpoint {
            channels: Some(vec!["eu".to_owned()]),
            ..endpoint()
        };
        let channels = planned(&channels);
        assert!(channels.begins_disabled() && !channels.disabled);
        assert_eq!(channels.left, ["its channels eu: there are none here"]);
        let transformed = Destination::of(&endpoint(), Headers::default(), true).unwrap();
        assert!(transformed.begins_disabled() && transformed.left.len() == 1);
    }

    #[test]
    fn a_header_that_cannot_be_set_is_named_and_the_others_go_along() {
        let given = json!({
            "headers": {"X-Env": "canary", "Host": "canary", "svix-id": "canary"},
            "sensitive": ["Authorization"],
        });
        let given = serde_json::from_value(given).unwrap();
        let planned = Destination::of(&endpoint(), given, false).unwrap();
        assert_eq!(planned.headers.keys().collect::<Vec<_>>(), ["x-env"]);
        for name in ["Authorization", "Host", "svix-id"] {
            let begins = format!("its header {name}: ");
            assert!(planned.left.iter().any(|left| left.starts_with(&begins)));
        }
        assert!(!format!("{planned:?}").contains("canary"));
    }

    #[test]
    fn a_secret_is_one_that_signs_and_is_not_repeated() {
        let made = |text: &str| secret(Hidden::new(Zeroizing::new(text.to_owned())));
        let whole = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
        for good in [whole, &whole["whsec_".len()..]] {
            assert_eq!(made(good).unwrap().expose(), whole);
        }
        for bad in ["whpk_canary", "canary", "whsec_canary"] {
            let problem = format!("{:#}", made(bad).unwrap_err());
            assert!(problem.starts_with("its secret"), "{problem}");
            assert!(!problem.contains("canary"), "{problem}");
        }
    }

    #[test]
    fn the_newest_schema_of_a_type_is_taken_and_its_first_example() {
        let schemas = json!({
            "10": {"type": "object", "examples": [{"a": 1}, {"a": 2}]},
            "9": {},
        });
        let planned = Type::of(&EventType {
            name: "a.b".to_owned(),
            description: "two\nlines".to_owned(),
            archived: Some(true),
            schemas: serde_json::from_value(schemas.clone()).unwrap(),
            feature_flag: Some("beta".to_owned()),
            ..EventType::default()
        });
        assert_eq!(planned.schema, Some(schemas["10"].clone()));
        assert_eq!(planned.example, Some(json!({"a": 1})));
        assert_eq!(
            (planned.description.as_str(), planned.archived),
            ("two lines", true)
        );
        assert_eq!(
            planned.left,
            [
                "its feature flag beta: whoever subscribes gets it",
                "its schemas of versions 9: there is one here",
            ]
        );
        let odd = Type::of(&EventType {
            schemas: Some([("1".to_owned(), json!(true))].into()),
            deprecated: Some(true),
            ..EventType::default()
        });
        assert_eq!((odd.schema, odd.example, odd.archived), (None, None, false));
        assert_eq!(odd.left.len(), 2, "{:?}", odd.left);
        let plain = Type::of(&EventType::default());
        assert!(plain.schema.is_none() && plain.left.is_empty());
    }

    #[test]
    fn a_description_becomes_a_name() {
        assert_eq!(for_people("two\nlines"), "two lines");
        let long = "ä".repeat(MAX_NAME_BYTES);
        assert_eq!(for_people(&long), "ä".repeat(MAX_NAME_BYTES / 2));
        let nameless = Application {
            id: "app_1".to_owned(),
            ..Application::default()
        };
        assert_eq!(Tenant::of(&nameless).unwrap().name, "app_1");
    }
}
