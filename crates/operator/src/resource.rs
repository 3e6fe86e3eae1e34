//! The resource: what people write, and what they are told.
//!
//! Its documentation is the schema's, so it speaks to those who write YAML.

use std::collections::BTreeSet;
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema, Resource, ResourceExt};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The tenant of whoever names none.
pub const DEFAULT_TENANT: &str = "00000000-0000-0000-0000-000000000001";

fn default_tenant() -> String {
    DEFAULT_TENANT.to_owned()
}

/// With fields that no schema names: Paceline says what is wrong with them.
fn any_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "nullable": true,
        "x-kubernetes-preserve-unknown-fields": true,
    })
}

fn default_key() -> String {
    "secret".to_owned()
}

fn default_certificate_key() -> String {
    "tls.crt".to_owned()
}

fn default_private_key() -> String {
    "tls.key".to_owned()
}

/// A destination of webhooks, delivered to at exactly the rate that it allows.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq)]
#[kube(
    group = "paceline.dev",
    version = "v1alpha1",
    kind = "Destination",
    namespaced,
    category = "paceline",
    status = "DestinationStatus",
    derive = "PartialEq",
    doc = "A destination of webhooks, delivered to at exactly the rate that it allows.",
    printcolumn(name = "URL", type_ = "string", json_path = ".spec.url"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].status"#
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].reason"#
    ),
    printcolumn(name = "Rate", type_ = "number", json_path = ".status.startsPerSecond"),
    printcolumn(name = "Backlog", type_ = "integer", json_path = ".status.backlog"),
    printcolumn(
        name = "Drained",
        type_ = "string", // a date is shown as an age, and this one is to come
        json_path = ".status.drainEta",
        priority = 1
    ),
    printcolumn(
        name = "Id",
        type_ = "string",
        json_path = ".status.destinationId",
        priority = 1
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("self.url.startsWith('https://') || (self.allowHttp && self.url.startsWith('http://'))")
    .message("url must be https (http needs allowHttp)").field_path(".url"))]
#[x_kube(validation = Rule::new("!(has(self.clientCertificateRef) && self.url.startsWith('http://'))")
    .message("a client certificate can only be shown over https").field_path(".clientCertificateRef"))]
#[x_kube(validation = Rule::new("!(self.unlimited && has(self.limits))")
    .message("unlimited and limits exclude each other").field_path(".unlimited"))]
#[x_kube(validation = Rule::new("!(has(self.shape) && self.shape == 'leaky_bucket' && has(self.burst) && self.burst != 1)")
    .message("a leaky_bucket has a burst of 1, or none").field_path(".burst"))]
pub struct DestinationSpec {
    /// The id of the tenant whose destination it is; the default tenant if it is
    /// left out. It can't be changed.
    #[serde(default = "default_tenant")]
    #[schemars(regex(
        pattern = r"^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"
    ))]
    #[x_kube(validation = Rule::new("self == oldSelf").message("tenant can't be changed"))]
    pub tenant: String,
    /// Where its requests go: absolute, https.
    #[schemars(length(min = 1, max = 2048))]
    pub url: String,
    /// Allows an http url here. Paceline has to allow it as well, by
    /// PACELINE_ALLOW_HTTP.
    #[serde(default)]
    pub allow_http: bool,
    /// Starts per period. Left out, and not unlimited: what the tenant's tier says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<Limits>,
    /// No rate limit; maxInFlight still holds.
    #[serde(default)]
    pub unlimited: bool,
    /// A bucket's capacity, or how many of a window may start at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub burst: Option<i32>,
    /// How the limit spreads its starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shape: Option<Shape>,
    /// Attempts queued and in flight at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub max_in_flight: Option<i32>,
    /// By which part every period is stretched: 0.02 makes a second 1.02 s. Left out:
    /// measured, up to a hundredth of the period.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub safety_margin: Option<f64>,
    /// The largest margin that is measured, as a part of the period. Left out: 0.01.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub margin_cap: Option<f64>,
    /// Until when a request counts: until its start, or the end of its answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<Count>,
    /// The limit group of its tenant whose limits it shares with others, by name. Left out:
    /// it is in none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 100))]
    pub limit_group: Option<String>,
    /// Holds the backlog; events are still accepted.
    #[serde(default)]
    pub paused: bool,
    /// The types of events that it subscribes to; `order.*` is all below one, `*` all.
    #[serde(default)]
    #[schemars(length(max = 100), inner(length(min = 1, max = 256)))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub event_types: Vec<String>,
    /// Which events of these types it takes, by their payloads: JSON pointers, and what has
    /// to be found there. Left out: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "any_object")]
    pub filter: Option<Map<String, Value>>,
    /// The Secret that its requests are signed with. When it changes, the old one
    /// signs beside the new one for a day.
    pub signing_secret_ref: SecretReference,
    /// The Secret with the client certificate that its connections show, as
    /// cert-manager makes it (`kubernetes.io/tls`). Left out: none is shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_certificate_ref: Option<CertificateReference>,
    /// How it gets access tokens, by OAuth2 client credentials. Left out: it has none.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "oauth2")]
    pub oauth2: Option<OAuth2>,
    /// What becomes of the destination when this resource is deleted.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,
}

/// Starts per period; `0` in any of them pauses.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Copy, PartialEq, Eq, Default)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct Limits {
    /// In any second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1_000_000_000))]
    pub per_second: Option<i32>,
    /// In any minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1_000_000_000))]
    pub per_minute: Option<i32>,
    /// In any hour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1_000_000_000))]
    pub per_hour: Option<i32>,
    /// In any day.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1_000_000_000))]
    pub per_day: Option<i32>,
}

/// How a limit spreads its starts.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Shape {
    SlidingWindow,
    TokenBucket,
    LeakyBucket,
}

/// Until when a request counts.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Count {
    /// Until its start.
    Start,
    /// Until the end of its answer.
    Response,
}

/// A key of a Secret in the same namespace; to sign with, `whsec_…` or `whsk_…`.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, PartialEq, Eq)]
pub struct SecretReference {
    /// The Secret's name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Which of its keys.
    #[serde(default = "default_key")]
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
}

/// A Secret in the same namespace with a certificate and its private key, in PEM.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct CertificateReference {
    /// The Secret's name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Which of its keys has the certificate, and its chain behind it.
    #[serde(default = "default_certificate_key")]
    #[schemars(length(min = 1, max = 253))]
    pub certificate: String,
    /// Which of its keys has the private key.
    #[serde(default = "default_private_key")]
    #[schemars(length(min = 1, max = 253))]
    pub private_key: String,
}

/// How tokens are asked for; they are sent in the header `authorization`.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct OAuth2 {
    /// Where: absolute, https, by the rules of a destination's own URL.
    #[schemars(length(min = 1, max = 2048))]
    pub token_url: String,
    /// As whom.
    #[schemars(length(min = 1, max = 512))]
    pub client_id: String,
    /// The key of a Secret with the client's secret.
    pub client_secret_ref: SecretReference,
    /// What for.
    #[serde(default)]
    #[schemars(length(max = 20), inner(length(min = 1, max = 512)))]
    pub scopes: Vec<String>,
    /// For whom, where the token server wants to know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub audience: Option<String>,
    /// How the client says who it is: by HTTP Basic, or in the body.
    #[serde(default)]
    pub client_auth: ClientAuth,
}

/// How a client says who it is.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Copy, PartialEq, Eq, Default)]
#[serde(rename_all = "snake_case")]
pub enum ClientAuth {
    /// By HTTP Basic.
    #[default]
    Basic,
    /// In the body.
    Body,
}

/// What becomes of a destination whose resource is deleted.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DeletionPolicy {
    /// It goes on as it is, and can be changed by the API. A resource of the same
    /// name takes it over again.
    #[default]
    Retain,
    /// It is deleted, with its backlog. Its ledger stays.
    Discard,
}

/// What was found, as of the last look. Numbers are rounded to two digits.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, PartialEq, Default)]
#[serde(rename_all = "camelCase")]
pub struct DestinationStatus {
    /// The generation of the spec that the conditions are about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Its id in Paceline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination_id: Option<String>,
    /// The limit group that it is in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_group: Option<String>,
    /// Starts per second of late.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub starts_per_second: Option<f64>,
    /// Attempts that wait, counted up to 100000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backlog: Option<i64>,
    /// When they have all started, if nothing else comes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub drain_eta: Option<String>,
    /// Its breaker: closed lets everything through, open holds the backlog, half_open
    /// lets one attempt through at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub circuit: Option<Circuit>,
    /// Ready: the destination is as the resource says, and is delivered to. Synced:
    /// it is as the resource says. Throttled: work waits for its limits or for its
    /// receiver. Conflict: somebody else has it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions")]
    pub conditions: Vec<Condition>,
}

/// A breaker's state.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Circuit {
    Closed,
    Open,
    HalfOpen,
}

/// Kubernetes' own conditions, as its own kinds have them.
fn conditions(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "required": ["type", "status", "lastTransitionTime", "reason", "message"],
            "properties": {
                "type": { "type": "string", "maxLength": 316 },
                "status": { "type": "string", "enum": ["True", "False", "Unknown"] },
                "observedGeneration": { "type": "integer", "format": "int64", "minimum": 0 },
                "lastTransitionTime": { "type": "string", "format": "date-time" },
                "reason": { "type": "string", "minLength": 1, "maxLength": 1024 },
                "message": { "type": "string", "maxLength": 32768 },
            },
        },
    })
}

impl DestinationSpec {
    /// The Secrets that it names, each once.
    #[must_use]
    pub fn secret_names(&self) -> BTreeSet<&str> {
        let certificate = self.client_certificate_ref.as_ref();
        let client = self.oauth2.as_ref().map(|one| &one.client_secret_ref);
        let names = [
            Some(&self.signing_secret_ref.name),
            certificate.map(|one| &one.name),
            client.map(|one| &one.name),
        ];
        names.into_iter().flatten().map(String::as_str).collect()
    }
}

impl Destination {
    /// Its namespace and name, such as `paceline/shop`.
    #[must_use]
    pub fn path(&self) -> String {
        format!(
            "{}/{}",
            self.namespace().unwrap_or_default(),
            self.name_any()
        )
    }

    /// It is being deleted.
    #[must_use]
    pub fn is_going(&self) -> bool {
        self.meta().deletion_timestamp.is_some()
    }
}

impl fmt::Display for Circuit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half open",
        })
    }
}
