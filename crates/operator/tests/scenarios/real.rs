//! The same on a real API server, where one is at hand: what only it knows is
//! whether it takes our definition, our patches and our samples.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, Secret};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use operator::resource::Destination;
use operator::run::act;
use operator::{OperatorOptions, crd};
use serde_json::json;

use super::paceline::Paceline;
use super::world::{SECRET, options, resource, secret, spec};

/// Names the kubeconfig of a cluster that tests may change.
const KUBECONFIG: &str = "PACELINE_TEST_KUBECONFIG";

const NAMESPACE: &str = "paceline-operator-test";

/// How long a cluster may take for what it does in seconds.
const PATIENCE: Duration = Duration::from_secs(120);

#[tokio::test]
async fn on_a_real_cluster() {
    let path = std::env::var(KUBECONFIG).unwrap_or_default();
    if path.is_empty() {
        // Past the test's own capture: this is to be seen.
        let said =
            format!("\nNOT RUN: {KUBECONFIG} names no cluster; on_a_real_cluster did nothing\n");
        std::io::stderr().write_all(said.as_bytes()).unwrap();
        return;
    }
    let kubeconfig = Kubeconfig::read_from(path).unwrap();
    let context = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &context).await;
    let client = Client::try_from(config.unwrap()).unwrap();
    install(&client).await;
    let paceline = Arc::new(Paceline::default());
    let options = OperatorOptions {
        namespace: NAMESPACE.to_owned(),
        ..options()
    };
    let test = tokio::time::timeout(PATIENCE, life(&client, &paceline));
    tokio::select! {
        done = test => done.expect("the cluster is slow"),
        () = act(client.clone(), paceline.clone(), &options) => panic!("the loop ended"),
    }
}

async fn install(client: &Client) {
    let applied = PatchParams::apply("paceline-test").force();
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let name = "destinations.paceline.dev";
    let patch = Patch::Apply(crd::definition());
    definitions.patch(name, &applied, &patch).await.unwrap();
    let established = |one: &CustomResourceDefinition| {
        let status = one
            .status
            .as_ref()
            .and_then(|status| status.conditions.as_ref());
        let mut conditions = status.into_iter().flatten();
        conditions.any(|one| one.type_ == "Established" && one.status == "True")
    };
    until(async || established(&definitions.get(name).await.unwrap())).await;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace = json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE },
    });
    let patch = Patch::Apply(namespace);
    namespaces.patch(NAMESPACE, &applied, &patch).await.unwrap();
    let secrets: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
    let patch = Patch::Apply(secret(SECRET));
    secrets
        .patch("shop-signing", &applied, &patch)
        .await
        .unwrap();
}

async fn life(client: &Client, paceline: &Paceline) {
    let resources: Api<Destination> = Api::namespaced(client.clone(), NAMESPACE);
    let apply = async |per_second: i32| {
        let applied = PatchParams::apply("paceline-test").force();
        let patch = Patch::Apply(resource(spec(per_second)));
        resources.patch("shop", &applied, &patch).await.unwrap();
    };
    let ready = async || {
        let shop = resources.get("shop").await.unwrap();
        let status = shop.status.unwrap_or_default();
        status.observed_generation == shop.metadata.generation
            && (status.conditions.iter()).any(|one| one.type_ == "Ready" && one.status == "True")
    };
    // Of an earlier run that ended half-way.
    let _ = resources.delete("shop", &DeleteParams::default()).await;
    until(async || resources.get_opt("shop").await.unwrap().is_none()).await;
    paceline.done();
    apply(5).await;
    until(ready).await;
    assert_eq!(paceline.done(), ["create"]);
    apply(50).await;
    until(ready).await;
    assert_eq!(paceline.done(), ["change"]);
    for (field, value) in [
        ("url", json!("http://shop.example")),
        ("burst", json!(0)),
        ("tenant", json!("nobody")),
    ] {
        let mut wrong = spec(5);
        wrong[field] = value;
        let mut wrong = resource(wrong);
        wrong["metadata"]["name"] = json!("wrong");
        let wrong: Destination = serde_json::from_value(wrong).unwrap();
        let refused = resources.create(&PostParams::default(), &wrong).await;
        assert!(refused.is_err(), "a wrong {field} is refused");
    }
    resources
        .delete("shop", &DeleteParams::default())
        .await
        .unwrap();
    until(async || resources.get_opt("shop").await.unwrap().is_none()).await;
    assert_eq!(paceline.done(), ["release"]);
}

/// Asks until it is so.
async fn until(is_so: impl AsyncFn() -> bool) {
    while !is_so().await {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
