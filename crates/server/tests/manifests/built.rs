//! The manifests as kustomize builds them, each build made once.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use serde_json::Value;

/// What kustomize makes of one folder.
pub(crate) struct Build {
    pub(crate) name: &'static str,
    pub(crate) objects: Vec<Value>,
}

/// Both overlays, and KEDA in place of the autoscaler.
pub(crate) static BUILDS: LazyLock<[Build; 3]> = LazyLock::new(|| {
    [
        build("dev", &repository().join("k8s/overlays/dev")),
        build("prod", &repository().join("k8s/overlays/prod")),
        with_components("prod with keda", &["keda"]),
    ]
});

/// Postgres and RabbitMQ by their operators.
pub(crate) static SERVERS: LazyLock<Build> =
    LazyLock::new(|| with_components("prod with servers", &["cnpg", "rabbitmq-operator"]));

/// What an installation can have more: traces, and more to autoscale.
pub(crate) static EXTRAS: LazyLock<Build> =
    LazyLock::new(|| with_components("prod with extras", &["otlp", "autoscaling"]));

/// All of these.
pub(crate) fn every() -> impl Iterator<Item = &'static Build> {
    BUILDS.iter().chain([&*SERVERS, &*EXTRAS])
}

/// The overlay `prod`, and more.
pub(crate) fn with_components(name: &'static str, components: &[&str]) -> Build {
    combined(name, "overlays/prod", components)
}

/// One folder, and components in this order.
pub(crate) fn combined(name: &'static str, of: &str, components: &[&str]) -> Build {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("make a folder");
    let path = |of: &str| relative(folder.path(), &repository().join("k8s").join(of));
    let resource = path(of);
    let components = components
        .iter()
        .map(|one| path(&format!("components/{one}")));
    let components = components.collect::<Vec<_>>().join(", ");
    let text = format!("resources: [{resource}]\ncomponents: [{components}]\n");
    std::fs::write(folder.path().join("kustomization.yaml"), text).expect("write it");
    build(name, folder.path())
}

pub(crate) fn repository() -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    folder.canonicalize().expect("the repository is there")
}

/// A file of the repository.
pub(crate) fn read(path: &str) -> String {
    std::fs::read_to_string(repository().join(path))
        .unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The documents of a YAML file; what is empty is left out.
pub(crate) fn documents(text: &str) -> Vec<Value> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text).expect("it is YAML");
    documents.into_iter().filter(|one| !one.is_null()).collect()
}

/// The program, by name or path.
pub(crate) fn kubectl() -> String {
    match std::env::var("PACELINE_TEST_KUBECTL") {
        Ok(path) if !path.is_empty() => path,
        _ => "kubectl".to_owned(),
    }
}

fn build(name: &'static str, folder: &Path) -> Build {
    let kubectl = kubectl();
    let built = Command::new(&kubectl).arg("kustomize").arg(folder).output();
    let built = built.unwrap_or_else(|error| {
        panic!(
            "{kubectl} cannot be run ({error}): it builds the manifests. `scripts/test` installs \
             one; or name one in PACELINE_TEST_KUBECTL"
        )
    });
    let problem = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success(), "{name}: {problem}");
    assert_eq!(problem, "", "{name} builds without warnings");
    let text = String::from_utf8(built.stdout).expect("YAML is text");
    let mut objects = documents(&text);
    objects.iter_mut().for_each(unwrap_secret);
    Build { name, objects }
}

/// kustomize breaks long secrets into lines, which Kubernetes' base64 skips and
/// ours does not.
fn unwrap_secret(object: &mut Value) {
    if object["kind"] == "Secret" {
        for value in object["data"].as_object_mut().into_iter().flatten() {
            *value.1 = text(value.1).replace('\n', "").into();
        }
    }
}

/// kustomize takes no absolute paths.
fn relative(from: &Path, to: &Path) -> String {
    let from = from.canonicalize().expect("it is there");
    let up = "../".repeat(from.components().count() - 1);
    format!(
        "{up}{}",
        to.strip_prefix("/").expect("it is absolute").display()
    )
}

impl Build {
    pub(crate) fn of_kind<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Value> {
        self.objects
            .iter()
            .filter(move |object| object["kind"] == kind)
    }

    pub(crate) fn find(&self, kind: &str, name: &str) -> Option<&Value> {
        let mut objects = self.objects.iter();
        objects.find(|object| object["kind"] == kind && self::name(object) == name)
    }
}

pub(crate) fn name(object: &Value) -> &str {
    text(&object["metadata"]["name"])
}

/// A string that has to be there.
pub(crate) fn text(value: &Value) -> &str {
    value
        .as_str()
        .unwrap_or_else(|| panic!("{value} is no string"))
}

/// The entries of a list, or of none.
pub(crate) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

pub(crate) fn labels(value: &Value) -> BTreeMap<String, String> {
    let labels = value.as_object().into_iter().flatten();
    labels
        .map(|(key, value)| (key.clone(), text(value).to_owned()))
        .collect()
}

/// Whether a label selector selects what carries these labels. A field that it
/// does not know is an error: it would select less than it seems to.
pub(crate) fn selects(selector: &Value, labels: &BTreeMap<String, String>) -> bool {
    for field in selector
        .as_object()
        .into_iter()
        .flatten()
        .map(|(field, _)| field)
    {
        assert!(
            matches!(field.as_str(), "matchLabels" | "matchExpressions"),
            "{field}"
        );
    }
    let wanted = self::labels(&selector["matchLabels"]);
    let expressions = list(&selector["matchExpressions"]);
    wanted
        .iter()
        .all(|(key, value)| labels.get(key) == Some(value))
        && expressions.iter().all(|expression| {
            assert_eq!(expression["operator"], "In", "the only operator in use");
            let values = list(&expression["values"]);
            let label = labels.get(text(&expression["key"]));
            label.is_some_and(|label| values.iter().any(|value| value == label))
        })
}
