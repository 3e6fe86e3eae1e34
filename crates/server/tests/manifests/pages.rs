//! The steps of the page, run as they stand there by the real `kubectl` against the API
//! server in memory: all but those that need a kubelet or an image, which are named.

use std::io::Write as _;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::built::{documents, list, read, text};
use super::kubectl::Shell;

/// How long an end that comes by itself may take, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// What the page has users write.
const SECRETS: &str = "\
database-url=postgres://user:password@host:5432/paceline
worker-database-url=postgres://paceline_worker:password@host:5432/paceline
schedule-url=rediss://user:password@host:6379/
queue-url=amqps://user:password@host:5671/%2f
api-key=0123456789abcdef
secret-keys=one:BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=
";

/// The same for the operator of Postgres.
const WORKER: &str = "username=paceline_worker\npassword=password\n";

/// The lines of the shell on the page, from one heading to the next of its rank; of the
/// whole page without one.
fn steps(heading: Option<&str>) -> Vec<String> {
    let page = read("k8s/README.md");
    let part = match heading {
        None => &*page,
        Some(heading) => {
            let begin = format!("\n## {heading}\n");
            let (_, rest) = page.split_once(&begin).expect("the heading is there");
            rest.split("\n## ").next().unwrap_or_default()
        }
    };
    let blocks = part.split("```sh\n").skip(1);
    let lines = blocks.flat_map(|block| block.split("```").next().unwrap_or_default().lines());
    let lines = lines.map(str::trim).filter(|line| !line.is_empty());
    lines.map(str::to_owned).collect()
}

/// What nothing here takes, by how it begins, in the page's order; and why.
const LEFT: [(&str, &str); 5] = [
    (
        "docker build ",
        "makes an image, which takes Docker; `image` looks at what it is made of",
    ),
    ("kind load ", "brings the image to nodes"),
    (
        "kubectl -n paceline exec deploy/api -- ",
        "runs in a pod; what it runs is taken by the test `readme`",
    ),
    (
        "kubectl -n paceline logs deploy/receiver",
        "reads what a pod said",
    ),
    (
        "kubectl -n paceline exec deploy/postgres -- ",
        "runs in a pod; what it runs is taken by the test `readme`",
    ),
];

/// Whether it needs a kubelet, which runs pods, or an image.
fn needs_a_kubelet(step: &str) -> bool {
    LEFT.iter().any(|(begin, _)| step.starts_with(begin))
}

/// A cluster with nothing in it, and a folder with our manifests and the user's secrets.
async fn empty_cluster() -> Shell {
    let shell = Shell::start().await;
    shell.copy_manifests();
    shell.write("secret.env", SECRETS);
    shell.write("worker.env", WORKER);
    shell
}

async fn run(shell: &Shell, steps: &[String]) {
    for step in steps.iter().filter(|step| !needs_a_kubelet(step)) {
        shell.done(step).await;
    }
}

#[tokio::test]
async fn every_step_of_the_readme_can_be_taken_in_its_order() {
    let mut steps = steps(None);
    let left: Vec<&String> = steps.iter().filter(|step| needs_a_kubelet(step)).collect();
    assert_eq!(left.len(), LEFT.len(), "no more than these: {left:#?}");
    for (step, (begin, why)) in left.iter().zip(LEFT) {
        assert!(step.starts_with(begin), "{step}: is it one that {why}?");
    }
    // It ends with uninstalling, and with what to do where that was not done: below.
    let way_out = steps.pop().expect("it has steps");
    assert!(way_out.contains("finalizers"), "{way_out}");
    let shell = empty_cluster().await;
    run(&shell, &steps).await;
    assert!(is_gone(&shell));
    no_namespace(&shell).await;
}

/// Names the kubeconfig of a cluster that tests may change. It has not to have the image,
/// nor the kinds of others that an installation for production needs.
const KUBECONFIG: &str = "PACELINE_TEST_KUBECONFIG";

/// What a page's resources are of is not there at once.
const ESTABLISHED: &str = "kubectl wait --for=condition=Established crd --all --timeout=1m";

/// Whether it comes to its end on any cluster: it waits for no pod, and needs no kind that
/// others define.
fn is_for_any_cluster(step: &str) -> bool {
    let waits = step.contains(" wait --for=") || step.contains(" rollout status ");
    !waits && !step.contains("k8s/overlays/prod") && !needs_a_kubelet(step)
}

/// The page's steps for any cluster.
fn for_any_cluster() -> Vec<String> {
    let mut steps = steps(None);
    steps.pop();
    steps.retain(|step| is_for_any_cluster(step));
    steps
}

#[test]
fn what_a_real_cluster_may_lack_is_left_out_and_nothing_else() {
    let taken = for_any_cluster();
    let mut left = steps(None);
    left.retain(|step| !taken.contains(step) && !needs_a_kubelet(step));
    // The way out of half an uninstallation is the last.
    let begin = [
        "kubectl -n paceline wait --for=condition=Available ",
        "kubectl -n paceline wait --for=condition=Ready ",
        "kubectl apply -k k8s/overlays/prod",
        "sed -i.old ",
        "kubectl apply -k k8s/overlays/prod",
        "kubectl -n paceline rollout status ",
        "kubectl -n paceline rollout status ",
        "cp secret.env ",
        "printf ",
        "kubectl apply -k k8s/overlays/prod",
        "kubectl -n paceline get destinations -o name ",
    ];
    assert_eq!(left.len(), begin.len(), "{left:#?}");
    for (step, begin) in left.iter().zip(begin) {
        assert!(step.starts_with(begin), "{step}");
    }
    assert!(taken.iter().any(|step| step.contains("k8s/overlays/dev")));
}

const APPLY_DEV: &str = "kubectl apply -k k8s/overlays/dev";

/// Another setting and another image, as in an upgrade, and then nothing.
async fn changed_and_applied_again(shell: &Shell) {
    for (change, path) in [
        ("s/LOG=info/LOG=debug/", "base/settings.env"),
        (
            "s/newTag: 0.1.0/newTag: 0.1.1/",
            "overlays/dev/kustomization.yaml",
        ),
    ] {
        let before = shell.done(&format!("cat k8s/{path}")).await;
        shell
            .done(&format!("sed -i.old '{change}' k8s/{path}"))
            .await;
        assert_ne!(
            shell.done(&format!("cat k8s/{path}")).await,
            before,
            "{path}"
        );
        let said = shell.done(APPLY_DEV).await;
        assert!(
            said.contains("deployment.apps/scheduler configured"),
            "{said}"
        );
    }
    let again = shell.done(APPLY_DEV).await;
    assert!(
        again.contains("deployment.apps/scheduler unchanged"),
        "{again}"
    );
    assert!(!again.contains("created"), "{again}");
}

/// In front of ours, too.
#[tokio::test]
async fn an_installation_can_be_changed_and_applied_again() {
    assert!(for_any_cluster().iter().any(|step| step == APPLY_DEV));
    let shell = empty_cluster().await;
    shell.done(APPLY_DEV).await;
    changed_and_applied_again(&shell).await;
}

/// The same page, and the same end, where the API server is not ours.
#[tokio::test]
async fn every_step_of_the_readme_can_be_taken_on_a_real_cluster() {
    let Some(kubeconfig) = std::env::var_os(KUBECONFIG).filter(|path| !path.is_empty()) else {
        // Past the test's own capture: this is to be seen.
        let said =
            format!("\nNOT RUN: {KUBECONFIG} names no cluster to take the README's steps on\n");
        std::io::stderr()
            .write_all(said.as_bytes())
            .expect("say it");
        return;
    };
    let kubeconfig = std::fs::read_to_string(kubeconfig).expect("read the kubeconfig");
    let shell = empty_cluster().await.on_a_real_cluster(&kubeconfig);
    for step in for_any_cluster() {
        shell.done(&step).await;
        if step.contains("apply -k") {
            shell.done(ESTABLISHED).await;
        }
        if step == APPLY_DEV {
            changed_and_applied_again(&shell).await;
        }
    }
    no_namespace(&shell).await;
}

/// As a user finds it after the page's last step.
async fn no_namespace(shell: &Shell) {
    let left = "kubectl get namespace paceline --ignore-not-found --output name";
    assert_eq!(shell.done(left).await, "");
}

/// The namespace is there before the Secret.
#[tokio::test]
async fn what_users_supply_can_be_made_on_an_empty_cluster() {
    let shell = empty_cluster().await;
    run(&shell, &steps(Some("What you supply"))).await;
    let secret = shell.server.get("secrets", "paceline");
    assert!(secret.expect("it was made")["data"]["secret-keys"].is_string());
    assert!(shell.server.get("deployments", "worker").is_some());
}

/// Once kustomize makes the Secret, another one is applied, and nothing else.
#[tokio::test]
async fn a_changed_secret_is_one_step() {
    let shell = empty_cluster().await;
    let steps = steps(Some("Changing secrets"));
    let [.., copy, generate, apply] = &steps[..] else {
        panic!("{steps:#?}")
    };
    for step in [copy, generate, apply] {
        shell.done(step).await;
    }
    let changed = SECRETS.replace("0123456789abcdef", "another-key-of-a-test");
    shell.write("k8s/overlays/prod/secret.env", &changed);
    let said = shell.done(apply).await;
    for role in ["api", "scheduler", "worker", "operator"] {
        let rolled = format!("deployment.apps/{role} configured");
        assert!(said.contains(&rolled), "{role}: {said}");
    }
    let names = shell.server.names("secrets");
    let made = names.iter().filter(|name| name.starts_with("paceline-"));
    assert_eq!(made.count(), 2, "{names:?}");
}

/// What is built for production with Postgres by its operator and the patch beneath a
/// heading of the page.
async fn with_cnpg_and_the_patch_of(shell: &Shell, heading: &str) -> Vec<Value> {
    let page = read("k8s/README.md");
    let begin = format!("\n{heading}\n");
    let (_, rest) = page.split_once(&begin).expect("the heading is there");
    let patch = rest.split("```yaml\n").nth(1).expect("it has a patch");
    let folder = "k8s/overlays/patched";
    std::fs::create_dir(shell.path().join(folder)).expect("make a folder");
    let patch = patch.split("```").next().unwrap_or_default();
    shell.write(&format!("{folder}/patch.yaml"), patch);
    let overlay = "resources: [../prod]\ncomponents: [../../components/cnpg]\n\
        patches: [{ path: patch.yaml }]\n";
    shell.write(&format!("{folder}/kustomization.yaml"), overlay);
    documents(&shell.done(&format!("kubectl kustomize {folder}")).await)
}

fn cluster(built: &[Value]) -> &Value {
    let cluster = built.iter().find(|object| object["kind"] == "Cluster");
    cluster.expect("it is there")
}

/// The patch that the page has for it is one.
#[tokio::test]
async fn backups_can_be_added_to_the_cluster() {
    let shell = empty_cluster().await;
    let built = with_cnpg_and_the_patch_of(&shell, "## Servers by their operators").await;
    let spec = &cluster(&built)["spec"];
    let plugin = &spec["plugins"][0];
    assert_eq!(plugin["parameters"]["barmanObjectName"], "paceline-backups");
    assert_eq!(spec["instances"], 3, "it is added to what is there");
}

/// The role that workers connect as, that schedulers give rights to, and whose password
/// the page has users make. Without it workers wait for ever.
#[tokio::test]
async fn the_cluster_makes_the_role_of_workers() {
    let shell = empty_cluster().await;
    let built = with_cnpg_and_the_patch_of(&shell, "### Workers' role with `cnpg`").await;
    let cluster = cluster(&built);
    assert_eq!(
        cluster["spec"]["instances"], 3,
        "it is added to what is there"
    );
    let roles = list(&cluster["spec"]["managed"]["roles"]);
    let [role] = roles else { panic!("{roles:#?}") };
    assert_eq!(
        (&role["login"], &role["ensure"]),
        (&json!(true), &json!("present"))
    );
    let name = text(&role["name"]);
    let scheduler = (built.iter())
        .find(|one| one["kind"] == "Deployment" && one["metadata"]["name"] == "scheduler")
        .expect("it is there");
    let schema = &scheduler["spec"]["template"]["spec"]["initContainers"][0];
    let granted = list(&schema["env"])
        .iter()
        .find(|one| one["name"] == "PACELINE_WORKER_ROLE");
    assert_eq!(granted.expect("it gives rights")["value"], name);
    let connects = format!("worker-database-url=postgres://{name}:");
    assert!(SECRETS.contains(&connects), "{connects}");

    run(&shell, &steps(Some("What you supply"))).await;
    let secret = text(&role["passwordSecret"]["name"]);
    let secret = shell.server.get("secrets", secret).expect("it was made");
    assert_eq!(secret["type"], "kubernetes.io/basic-auth");
    let username = STANDARD.encode(name);
    assert_eq!(
        secret["data"]["username"], username,
        "the operator compares them"
    );
    assert!(secret["data"]["password"].is_string());
}

/// As many resources as its operator does not let go at once.
async fn with_resources(shell: &Shell) {
    shell.done("kubectl apply -k k8s/overlays/dev").await;
    let mut resources = String::new();
    let sample = read("k8s/samples/destination.yaml");
    for number in 0..40 {
        resources += &sample.replace("name: shop\n", &format!("name: shop-{number}\n"));
        resources += "---\n";
    }
    shell.write("resources.yaml", &resources);
    shell.done("kubectl apply -f resources.yaml").await;
    shell
        .done("kubectl -n paceline wait --for=condition=Ready destination --all --timeout=1m")
        .await;
}

fn is_gone(shell: &Shell) -> bool {
    shell.server.names("destinations").is_empty()
        && shell.server.get("namespaces", "paceline").is_none()
        && shell.server.names("customresourcedefinitions").is_empty()
}

#[tokio::test]
async fn one_command_uninstalls_it() {
    let shell = empty_cluster().await;
    with_resources(&shell).await;
    let [uninstall, _] = &steps(Some("Uninstalling"))[..] else {
        panic!("one command, and one for where it was not given")
    };
    shell.done(uninstall).await;
    assert!(is_gone(&shell));
}

/// Where the operator went before its resources.
#[tokio::test]
async fn there_is_a_way_out_of_half_an_uninstallation() {
    let shell = empty_cluster().await;
    with_resources(&shell).await;
    shell
        .done("kubectl delete -k k8s/overlays/dev --ignore-not-found --wait=false")
        .await;
    let namespace = shell.server.get("namespaces", "paceline");
    let namespace = namespace.expect("it waits for its resources");
    assert!(namespace["metadata"]["deletionTimestamp"].is_string());
    assert!(!shell.server.names("destinations").is_empty());
    let [_, way_out] = &steps(Some("Uninstalling"))[..] else {
        panic!("one command, and one for where it was not given")
    };
    shell.done(way_out).await;
    tokio::time::timeout(PATIENCE, async {
        while !is_gone(&shell) {
            tokio::task::yield_now().await;
        }
    })
    .await
    .expect("nothing holds it any more");
}
