//! The Dockerfile, compose.yaml and the commands of the README name what is
//! there.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use clap::CommandFactory;
use serde_json::Value;
use server::cli::{Cli, Command, parse};
use server::config::unknown;

use super::built::{BUILDS, documents, list, read, repository, text};
use super::settings::{as_flags, check, command};

/// The instructions of the Dockerfile, with continued lines joined.
pub(crate) fn instructions() -> Vec<(String, Vec<String>)> {
    let file = read("Dockerfile").replace("\\\n", " ");
    let lines = file
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty());
    lines
        .map(|line| {
            let mut words = line.split_whitespace().map(str::to_owned);
            (words.next().expect("an instruction"), words.collect())
        })
        .collect()
}

/// What an exec form runs.
fn exec(instruction: &str) -> Vec<String> {
    let mut all = instructions().into_iter();
    let found = all.rfind(|(word, _)| word == instruction);
    let (_, words) = found.expect("it is there");
    serde_json::from_str(&words.join(" ")).expect("exec form: there is no shell")
}

#[test]
fn what_is_copied_is_there() {
    let mut stages: BTreeSet<String> = BTreeSet::new();
    let ignored = read(".dockerignore");
    let sent: BTreeSet<&str> = ignored
        .lines()
        .filter_map(|line| line.strip_prefix('!'))
        .collect();
    assert!(
        ignored.lines().any(|line| line == "*"),
        "only what is named is sent"
    );
    let mut copied = BTreeSet::new();
    for (word, words) in instructions() {
        match word.as_str() {
            "FROM" => stages.extend(words.get(2).cloned()),
            "COPY" => match words[0].strip_prefix("--from=") {
                Some(stage) => assert!(stages.contains(stage), "stage {stage}"),
                None => copied.extend(words[..words.len() - 1].to_vec()),
            },
            _ => {}
        }
    }
    for path in &copied {
        assert!(repository().join(path).exists(), "{path} is there");
        assert!(sent.contains(path.as_str()), "{path} is sent");
    }
    assert_eq!(
        copied.len(),
        sent.len(),
        "nothing is sent that is not copied"
    );
    // What cargo reads of the workspace, wherever it builds one package of it.
    let manifest = read("Cargo.toml");
    let members = manifest
        .split("members = [")
        .nth(1)
        .expect("it is a workspace");
    let members = members.split(']').next().expect("the list ends");
    for member in members.split('"').skip(1).step_by(2) {
        let top = member.split('/').next().expect("a path");
        assert!(copied.contains(top), "{member} is copied");
    }
    assert!(copied.contains("migrations"), "the program embeds them");
}

#[test]
fn the_image_runs_the_program() {
    let instructions = instructions();
    let entry = exec("ENTRYPOINT");
    let [entry] = entry.as_slice() else {
        panic!("the program alone")
    };
    let binary = instructions
        .iter()
        .find(|(word, words)| word == "COPY" && words[0] == "--from=build");
    let (_, words) = binary.expect("it is copied");
    assert_eq!(words[2], *entry);
    let profile = words[1].rsplit('/').nth(1).expect("target/PROFILE/NAME");
    assert!(read("Cargo.toml").contains(&format!("[profile.{profile}]")));
    assert!(words[1].ends_with(&format!("/{}", Cli::command().get_name())));
    let build = instructions
        .iter()
        .filter(|(word, words)| word == "RUN" && words[0] == "cargo");
    let profiles =
        build.filter(|(_, words)| words.windows(2).any(|two| two == ["--profile", profile]));
    assert_eq!(
        profiles.count(),
        2,
        "dependencies and program are built alike"
    );

    let version = format!("VERSION={}", env!("CARGO_PKG_VERSION"));
    assert!(
        instructions
            .iter()
            .any(|(word, words)| word == "ARG" && words[0] == version)
    );
    let (_, user) = instructions
        .iter()
        .rfind(|(word, _)| word == "USER")
        .expect("not root");
    for (_, pod) in BUILDS.iter().flat_map(super::built::Build::roles) {
        let security = &pod.spec["securityContext"];
        assert_eq!(
            user[0],
            format!("{}:{}", security["runAsUser"], security["runAsGroup"])
        );
        assert!(pod.container()["command"].is_null(), "the image's own");
    }
}

/// What makes the bill of materials.
const SBOM: [&str; 2] = ["cargo", "cyclonedx"];

/// The tool writes beside the manifest, by the name that it is given.
#[test]
fn the_image_says_what_it_is_made_of() {
    let instructions = instructions();
    let made = instructions
        .iter()
        .find(|(word, words)| word == "RUN" && words.windows(2).any(|two| two == SBOM));
    let (_, words) = made.expect("it is made");
    let option = |name: &str| {
        let mut pairs = words.windows(2);
        let found = pairs.find(|two| two[0] == name);
        found.map(|two| two[1].clone()).expect("it is given")
    };
    let manifest = option("--manifest-path");
    assert!(read(&manifest).contains("name = \"server\""));
    let folder = manifest.strip_suffix("Cargo.toml").expect("a manifest");
    let (name, format) = (option("--override-filename"), option("--format"));
    let written = format!("/paceline/{folder}{name}.{format}");
    let copied = instructions
        .iter()
        .find(|(word, words)| word == "COPY" && words[1] == written);
    let (_, copied) = copied.expect("it is copied");
    assert_eq!(copied[0], "--from=build");
    let label = format!("dev.paceline.sbom=\"{}\"", copied[2]);
    let mut labels = instructions.iter().filter(|(word, _)| word == "LABEL");
    assert!(labels.any(|(_, words)| words.contains(&label)), "{label}");
    // Each tool at a version of its own, so that the same sources give the same list.
    let installed = read("Dockerfile");
    for tool in ["cargo-chef", "cargo-auditable", "cargo-cyclonedx"] {
        let line = installed.lines().find(|line| line.contains(tool));
        let line = line.expect("it is installed");
        assert!(line.contains("--locked --version "), "{line}");
    }
}

/// The settings of a service of compose.yaml.
fn environment(service: &Value) -> BTreeMap<String, String> {
    let settings = service["environment"].as_object().into_iter().flatten();
    settings
        .map(|(name, value)| (name.clone(), text(value).to_owned()))
        .collect()
}

#[test]
fn compose_runs_every_role_with_settings_that_it_takes() {
    let compose = documents(&read("compose.yaml")).remove(0);
    let services = compose["services"].as_object().expect("it has services");
    // There is no API server without Kubernetes.
    let roles = super::pods::ROLES.into_iter();
    let roles = roles.filter(|role| *role != "operator");
    for role in roles.chain(["migrate"]) {
        let service = &services[role];
        let environment = environment(service);
        let names = environment.keys().cloned();
        unknown::refuse_unknown(&Cli::command(), names).expect("no variable is misspelt");
        assert_eq!(service["command"], serde_json::json!([role]));
        let arguments = as_flags(&[role], &environment);
        parse(&arguments).unwrap_or_else(|refused| panic!("{role}: {refused}"));
        check(role, &arguments);
        let waits = text(&service["stop_grace_period"]).trim_end_matches('s');
        let waits = Duration::from_secs(waits.parse().expect("seconds"));
        if let Command::Worker(args) = command(&arguments) {
            assert!(waits > args.shutdown.shutdown_grace);
        }
        for (_, url) in environment
            .iter()
            .filter(|(name, _)| name.ends_with("_URL"))
        {
            let host = url::Url::parse(url).expect("a URL");
            let host = host.host_str().expect("it has a host");
            assert!(
                services.contains_key(host) || host == "127.0.0.1",
                "{host} is a service"
            );
        }
        for after in service["depends_on"].as_object().expect("it waits").keys() {
            assert!(services.contains_key(after), "{after} is a service");
        }
    }
    for (name, service) in services {
        for volume in list(&service["volumes"]) {
            let (from, _) = text(volume).split_once(':').expect("FROM:TO");
            match from.strip_prefix("./") {
                Some(path) => assert!(repository().join(path).is_file(), "{name}: {path}"),
                None => assert!(compose["volumes"].get(from).is_some(), "{name}: {from}"),
            }
        }
    }
}

#[test]
fn the_walk_has_ten_commands_that_can_be_given() {
    let page = read("k8s/README.md");
    let walk = page
        .split("```sh\n")
        .nth(1)
        .and_then(|rest| rest.split("```").next());
    let walk: Vec<&str> = walk.expect("the walk is there").lines().collect();
    assert!(walk.len() <= 10, "{} commands", walk.len());
    let dev = &BUILDS[0];
    let version = env!("CARGO_PKG_VERSION");
    for line in &walk[..2] {
        assert!(line.contains(&format!("paceline:{version}")), "{line}");
    }
    let mut ours = 0;
    for line in &walk[2..] {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let Some(folder) = words.iter().position(|word| *word == "-k") {
            assert!(repository().join(words[folder + 1]).is_dir(), "{line}");
        }
        if let Some(target) = words.iter().find_map(|word| word.strip_prefix("deploy/")) {
            assert!(dev.find("Deployment", target).is_some(), "{line}");
        }
        if let Some((_, words)) = line.split_once("-- paceline ") {
            ours += 1;
            let quoted: Vec<&str> = words.split('\'').collect();
            let mut arguments = vec!["paceline".to_owned()];
            for (number, part) in quoted.iter().enumerate() {
                match number % 2 {
                    0 => arguments.extend(part.split_whitespace().map(str::to_owned)),
                    _ => arguments.push((*part).to_owned()),
                }
            }
            parse(&arguments).unwrap_or_else(|refused| panic!("{line}: {refused}"));
        }
    }
    assert_eq!(ours, 1, "an event");
    let sample = "k8s/samples/destination.yaml";
    assert!(
        walk.iter()
            .any(|line| line.ends_with(&format!("-f {sample}")))
    );
    assert!(read(sample).contains("perSecond: 5"), "what sed changes");
    let sample = documents(&read(sample));
    let url = url::Url::parse(text(&sample[1]["spec"]["url"])).expect("a URL");
    let host = url.host_str().expect("it has a host");
    let (service, zone) = host.split_once('.').expect("a name of the cluster");
    assert_eq!(zone, "paceline.svc.cluster.local");
    let service = dev.find("Service", service).expect("it is there");
    // Its addresses are its pods', which the policies are about.
    assert_eq!(service["spec"]["clusterIP"], "None");
    let port = &service["spec"]["ports"][0]["port"];
    assert_eq!(*port, url.port().expect("a port"));
}
