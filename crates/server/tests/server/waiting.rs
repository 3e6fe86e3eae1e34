//! `paceline migrate --wait`: ends when somebody else has migrated.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::process::paceline;

fn migrate(folder: &Path) -> Command {
    let mut command = paceline(folder);
    command
        .arg("migrate")
        .env("PACELINE_DATABASE_URL", "sqlite:paceline.db")
        .env("PACELINE_LOG", "info");
    command
}

#[test]
fn who_waits_for_the_schema_goes_on_when_it_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let mut waiting = migrate(folder.path())
        .arg("--wait")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut log = BufReader::new(waiting.stderr.take().unwrap());
    let mut line = String::new();
    log.read_line(&mut line).unwrap();
    assert!(line.contains("waits for the schema"), "{line}");
    let database = folder.path().join("paceline.db");
    assert!(!database.exists(), "who waits makes nothing");
    assert!(migrate(folder.path()).status().unwrap().success());
    let mut rest = String::new();
    log.read_to_string(&mut rest).unwrap();
    let output = waiting.wait_with_output().unwrap();
    assert!(output.status.success(), "{rest}");
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("is up to date"), "{said}");
}

#[test]
fn a_role_for_workers_is_given_its_rights_where_there_are_roles() {
    let folder = tempfile::tempdir().unwrap();
    for (role, problem) in [
        (
            "paceline_worker",
            "--worker-role (PACELINE_WORKER_ROLE): only Postgres",
        ),
        ("", "must have 1 to 63 bytes"),
    ] {
        let mut command = migrate(folder.path());
        let output = command.args(["--worker-role", role]).output().unwrap();
        assert!(!output.status.success());
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains(problem), "{said}");
    }
}

#[test]
fn who_waits_in_vain_says_for_what() {
    let folder = tempfile::tempdir().unwrap();
    let mut waiting = migrate(folder.path());
    let output = waiting
        .args(["--wait", "--timeout", "1s"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("waited 1s in vain"), "{said}");
    assert!(said.contains("paceline.db"), "{said}");
    let output = migrate(folder.path()).args(["--timeout", "1s"]).output();
    assert_eq!(output.unwrap().status.code(), Some(2), "nothing waits");
}
