//! The definition of the resource, as `k8s/crds` has it.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;

use crate::resource::Destination;

/// What the API server is given.
#[must_use]
pub fn definition() -> CustomResourceDefinition {
    Destination::crd()
}

/// The same as YAML.
#[must_use]
pub fn yaml() -> String {
    let text = serde_saphyr::to_string(&definition());
    let text = text.expect("a definition has no values that YAML lacks");
    format!("# Printed by `paceline crd`; a test compares them.\n{text}")
}
