//! Kubernetes' own kinds are what its types say, with no field that they do not
//! know.

use k8s_openapi::Resource;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::built::{every, name, text};

/// Parses it, and says which fields were not used.
pub(crate) fn surplus<T: DeserializeOwned + Resource>(object: &Value) -> Vec<String> {
    assert_eq!(text(&object["apiVersion"]), T::API_VERSION);
    let mut unused = Vec::new();
    let parsed: Result<T, _> =
        serde_ignored::deserialize(object, |path| unused.push(path.to_string()));
    if let Err(problem) = parsed {
        panic!("{} {}: {problem}", T::KIND, name(object));
    }
    unused
}

#[test]
fn built_in_kinds_have_no_field_that_kubernetes_does_not_know() {
    for build in every() {
        for object in &build.objects {
            let surplus = match text(&object["kind"]) {
                "CustomResourceDefinition" => surplus::<CustomResourceDefinition>(object),
                "ConfigMap" => surplus::<ConfigMap>(object),
                "Deployment" => surplus::<Deployment>(object),
                "HorizontalPodAutoscaler" => surplus::<HorizontalPodAutoscaler>(object),
                "Namespace" => surplus::<Namespace>(object),
                "NetworkPolicy" => surplus::<NetworkPolicy>(object),
                "PodDisruptionBudget" => surplus::<PodDisruptionBudget>(object),
                "Role" => surplus::<Role>(object),
                "RoleBinding" => surplus::<RoleBinding>(object),
                "Secret" => surplus::<Secret>(object),
                "Service" => surplus::<Service>(object),
                "ServiceAccount" => surplus::<ServiceAccount>(object),
                "PodMonitor"
                | "PrometheusRule"
                | "ServiceMonitor"
                | "ScaledObject"
                | "TriggerAuthentication"
                | "Cluster"
                | "RabbitmqCluster" => continue,
                other => panic!("{other} is a kind that nobody checks"),
            };
            assert!(
                surplus.is_empty(),
                "{} {}: {surplus:?}",
                object["kind"],
                name(object)
            );
        }
    }
}
