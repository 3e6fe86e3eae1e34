//! A cluster, Paceline, and one resource, `shop`.

use std::sync::Arc;

use domain::time::Timestamp;
use kube::runtime::controller::Action;
use operator::OperatorOptions;
use operator::reconcile::{Context, Failure, reconcile};
use operator::resource::Destination;
use operator::run::act;
use rand::SeedableRng;
use rand::rngs::StdRng;
use serde_json::{Value, json};

use super::cluster::{Cluster, NAMESPACE, list, text};
use super::paceline::Paceline;

pub(crate) const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

pub(crate) struct World {
    pub(crate) cluster: Cluster,
    pub(crate) paceline: Arc<Paceline>,
    context: Arc<Context>,
}

pub(crate) fn clock() -> Timestamp {
    Timestamp::from_micros(1_795_000_000_000_000)
}

pub(crate) fn options() -> OperatorOptions {
    OperatorOptions {
        namespace: NAMESPACE.to_owned(),
        lease: "paceline-operator".to_owned(),
        identity: "one".to_owned(),
        clock,
        seed: 7,
    }
}

pub(crate) fn spec(per_second: i32) -> Value {
    json!({
        "url": "https://shop.example/hooks",
        "limits": { "perSecond": per_second },
        "eventTypes": ["order.created"],
        "signingSecretRef": { "name": "shop-signing", "key": "secret" },
    })
}

pub(crate) fn resource(spec: Value) -> Value {
    json!({
        "apiVersion": "paceline.dev/v1alpha1",
        "kind": "Destination",
        "metadata": { "name": "shop" },
        "spec": spec,
    })
}

pub(crate) fn secret(text: &str) -> Value {
    secrets("shop-signing", json!({ "secret": text }))
}

/// A Secret with these texts.
pub(crate) fn secrets(name: &str, mut texts: Value) -> Value {
    use base64::Engine;
    for value in texts.as_object_mut().unwrap().values_mut() {
        *value = json!(base64::engine::general_purpose::STANDARD.encode(text(value)));
    }
    json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": { "name": name }, "data": texts,
    })
}

impl World {
    /// With the resource and its Secret.
    pub(crate) fn new() -> Self {
        let cluster = Cluster::new();
        cluster.put("secrets", secret(SECRET));
        cluster.put("destinations", resource(spec(5)));
        let paceline = Arc::new(Paceline::default());
        let context = Context::new(
            cluster.client.clone(),
            paceline.clone(),
            clock,
            StdRng::seed_from_u64(7),
            "one",
        );
        Self {
            cluster,
            paceline,
            context: Arc::new(context),
        }
    }

    /// The resource, as the server has it.
    pub(crate) fn shop(&self) -> Option<Destination> {
        let object = self.cluster.get("destinations", "shop")?;
        Some(serde_json::from_value(object).unwrap())
    }

    /// One look at it.
    pub(crate) async fn look(&self) -> Result<Action, Failure> {
        let shop = self.shop().expect("it is there");
        reconcile(Arc::new(shop), Arc::clone(&self.context)).await
    }

    /// When a failed look is tried again.
    pub(crate) fn try_again(&self, failure: &Failure) -> Action {
        let shop = self.shop().expect("it is there");
        operator::reconcile::try_again(&shop, failure, &self.context)
    }

    /// Looks until there is nothing more to do: the first sets the finalizer.
    pub(crate) async fn settle(&self) {
        self.look().await.unwrap();
        if self.shop().is_some_and(|shop| !shop.is_going()) {
            self.look().await.unwrap();
        }
    }

    pub(crate) fn apply(&self, spec: Value) {
        self.cluster.put("destinations", resource(spec));
    }

    pub(crate) fn status(&self) -> Value {
        self.cluster.get("destinations", "shop").unwrap()["status"].clone()
    }

    /// A condition's status and reason.
    pub(crate) fn condition(&self, kind: &str) -> (String, String) {
        let status = self.status();
        let found = list(&status["conditions"])
            .iter()
            .find(|one| one["type"] == kind);
        let found = found.unwrap_or_else(|| panic!("{kind} is said"));
        (
            text(&found["status"]).to_owned(),
            text(&found["reason"]).to_owned(),
        )
    }

    /// The loop, for ever.
    pub(crate) async fn act(&self) {
        act(
            self.cluster.client.clone(),
            self.paceline.clone(),
            &options(),
        )
        .await;
    }
}

pub(crate) fn is(status: &str, reason: &str) -> (String, String) {
    (status.to_owned(), reason.to_owned())
}
