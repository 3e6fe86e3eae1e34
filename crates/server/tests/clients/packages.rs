//! The clients, generated from the description of a running server: what is published
//! of them does what `clients/README.md` says.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use serde_json::{Value, json};

use crate::site::{KEY, Site, done, root};

/// What a tour says, in this order.
const STATIONS: [&str; 5] = ["created", "sent", "verified", "changed to 50", "audited: 1"];

/// Where the source is said to be.
const REPOSITORY: &str = "https://git.example/paceline";

/// Where they are: generated and packed once, by whichever test is the first.
fn generated(site: &Site) -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let scripts = root().join("scripts");
        let said = done(Command::new(scripts.join("clients")).arg(site.url()));
        let mut packages = Command::new(scripts.join("client-packages"));
        done(packages.env("PACELINE_REPOSITORY", REPOSITORY));
        PathBuf::from(said.trim())
    })
}

/// The one package that ends like this.
#[track_caller]
fn package(folder: &Path, ending: &str) -> PathBuf {
    let files = fs::read_dir(folder.join("packages")).unwrap();
    let mut found: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    found.retain(|file| file.to_string_lossy().ends_with(ending));
    let [one] = &found[..] else {
        panic!("{ending}: {found:?}")
    };
    let version = format!("paceline_client-{}", env!("CARGO_PKG_VERSION"));
    let name = one
        .file_name()
        .unwrap()
        .to_string_lossy()
        .replace("paceline-", "paceline_");
    assert!(
        name.starts_with(&version),
        "{name} is not of the server's version"
    );
    one.clone()
}

/// By the platform's key, for a tenant by the platform's own id, whose destination it is.
#[track_caller]
fn toured(command: &mut Command, site: &Site) {
    let tenant = "shop";
    site.put(
        &format!("/v1/tenants/{tenant}"),
        &json!({"name": "The shop"}),
    );
    command.arg(site.url()).env("PACELINE_API_KEY", KEY);
    let said = done(command.env("PACELINE_TENANT", tenant));
    let theirs = site.acting(tenant, "GET", "/v1/destinations", &json!({}));
    assert_eq!(theirs["destinations"].as_array().unwrap().len(), 1);
    let ours = site.get("/v1/destinations");
    assert_eq!(ours["destinations"], json!([]), "it acted for the tenant");
    let words: Vec<_> = said.lines().zip(STATIONS).collect();
    assert_eq!(words.len(), STATIONS.len(), "{said}");
    for (line, station) in words {
        assert!(line.starts_with(station), "{station}: {said}");
    }
}

/// Unpacked without the folder that all of it is in, as of now: the files of a crate are all
/// of one day of 2006, and cargo would take what it built of an earlier one.
#[track_caller]
fn unpacked(package: &Path, into: &Path) {
    fs::create_dir_all(into).unwrap();
    let mut tar = Command::new("tar");
    tar.arg("-xzmf")
        .arg(package)
        .args(["--strip-components", "1", "-C"]);
    done(tar.arg(into));
}

#[test]
fn the_client_of_python_works_from_its_wheel() {
    let site = Site::start();
    let folder = generated(&site);
    let installed = site.folder.path().join("installed");
    let mut pip = Command::new(folder.join("venv/bin/pip"));
    pip.args(["install", "--quiet", "--no-deps", "--no-index", "--target"]);
    done(pip.arg(&installed).arg(package(folder, ".whl")));
    assert!(installed.join("paceline_client/py.typed").exists());
    let mut command = Command::new(folder.join("venv/bin/python"));
    command.arg(root().join("examples/python/tour.py"));
    toured(command.env("PYTHONPATH", &installed), &site);
}

#[test]
fn the_client_of_typescript_works_from_its_tarball() {
    let site = Site::start();
    let folder = generated(&site);
    // Below what it needs of others, so that it finds that.
    let user = folder.join("typescript/user");
    let _ = fs::remove_dir_all(&user);
    unpacked(
        &package(folder, ".tgz"),
        &user.join("node_modules/paceline-client"),
    );
    fs::write(user.join("package.json"), r#"{"type": "module"}"#).unwrap();
    fs::copy(
        root().join("examples/typescript/tour.ts"),
        user.join("tour.ts"),
    )
    .unwrap();
    let mut compiler = Command::new(folder.join("typescript/node_modules/.bin/tsc"));
    compiler.args(["--strict", "--skipLibCheck", "--target", "es2022"]);
    compiler.args(["--module", "nodenext", "--outDir", "built", "tour.ts"]);
    done(compiler.current_dir(&user));
    toured(Command::new("node").arg(user.join("built/tour.js")), &site);
}

/// Its own tests as well, among them those of `Webhook`. Over plain HTTP: TLS is
/// `reqwest`'s, and takes longer to compile than all else, so that is only checked.
#[test]
fn the_client_of_rust_works_from_its_crate() {
    let site = Site::start();
    let folder = generated(&site);
    // Not below this workspace, or cargo would take it for a part of it.
    let unpacking = site.folder.path().join("crate");
    unpacked(&package(folder, ".crate"), &unpacking);
    let cargo = |what: &[&str]| {
        let mut cargo = Command::new("cargo");
        cargo.args(what).current_dir(&unpacking);
        cargo
            .env_remove("RUSTC_WORKSPACE_WRAPPER")
            .env("CARGO_INCREMENTAL", "0")
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
            .env("CARGO_TARGET_DIR", folder.join("rust/target"))
            .env("RUSTFLAGS", "-D warnings");
        cargo
    };
    let with = ["--quiet", "--locked", "--no-default-features"];
    let with = [&with[..], &["--features", "client"]].concat();
    let said = done(&mut cargo(&[&["test", "--lib"][..], &with].concat()));
    assert!(said.contains("test result: ok. 1"), "{said}");
    let tour = [&["run"][..], &with, &["--example", "tour", "--"]].concat();
    toured(&mut cargo(&tour), &site);
    done(&mut cargo(&["check", "--quiet", "--locked"]));
}

/// So that whoever finds one in a registry finds the source.
#[test]
fn each_package_names_its_repository() {
    let site = Site::start();
    let folder = generated(&site);
    for (ending, file, says) in [
        (
            ".crate",
            "Cargo.toml",
            format!("repository = \"{REPOSITORY}\""),
        ),
        (
            ".tgz",
            "package.json",
            format!("\"url\": \"git+{REPOSITORY}.git\""),
        ),
    ] {
        let unpacking = site.folder.path().join(file);
        unpacked(&package(folder, ending), &unpacking);
        let said = fs::read_to_string(unpacking.join(file)).unwrap();
        assert!(said.contains(&says), "{said}");
    }
    let mut metadata = Command::new(folder.join("venv/bin/python"));
    let read = "import sys, zipfile
wheel = zipfile.ZipFile(sys.argv[1])
name = next(name for name in wheel.namelist() if name.endswith('/METADATA'))
print(wheel.read(name).decode())";
    let said = done(metadata.args(["-c", read]).arg(package(folder, ".whl")));
    let says = format!("Project-URL: Repository, {REPOSITORY}");
    assert!(said.contains(&says), "{said}");
}

/// What the generator does not know it does not leave out.
#[test]
fn a_form_that_the_generator_does_not_know_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let generate = |kind: Value| {
        let description = json!({
            "paths": {},
            "components": {"schemas": {"Shop": {
                "type": "object",
                "properties": {"opened": {"type": kind}},
            }}},
        });
        let file = folder.path().join("openapi.json");
        fs::write(&file, description.to_string()).unwrap();
        let mut python = Command::new("python3");
        python
            .arg(root().join("clients/rust/generate.py"))
            .arg(file);
        python.arg(folder.path().join("api.rs")).output().unwrap()
    };
    let known = generate(json!(["string", "null"]));
    assert!(known.status.success(), "{known:?}");
    let written = fs::read_to_string(folder.path().join("api.rs")).unwrap();
    assert!(written.contains("pub opened: Option<String>"), "{written}");

    let unknown = generate(json!(["string", "integer"]));
    assert!(!unknown.status.success());
    let said = String::from_utf8_lossy(&unknown.stderr);
    assert!(said.contains("ShopOpened: several types"), "{said}");
}
