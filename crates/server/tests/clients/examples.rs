//! The programs in `examples/`, with clients that are generated from the
//! description, as `examples/README.md` says.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::site::{KEY, Site, done, root};

/// What a tour says, in this order.
const STATIONS: [&str; 5] = ["created", "sent", "verified", "changed to 50", "audited: 1"];

fn generated(site: &Site) -> PathBuf {
    let said = done(Command::new(root().join("scripts/clients")).arg(site.url()));
    PathBuf::from(said.trim())
}

#[track_caller]
fn toured(command: &mut Command, site: &Site) {
    let said = done(command.arg(site.url()).env("PACELINE_API_KEY", KEY));
    let words: Vec<_> = said.lines().zip(STATIONS).collect();
    assert_eq!(words.len(), STATIONS.len(), "{said}");
    for (line, station) in words {
        assert!(line.starts_with(station), "{station}: {said}");
    }
}

#[test]
fn a_generated_client_of_python_and_one_of_typescript_work() {
    let site = Site::start();
    let folder = generated(&site);
    let python = folder.join("python");
    let tour = root().join("examples/python/tour.py");
    let mut command = Command::new(python.join("bin/python"));
    toured(command.arg(tour).env("PYTHONPATH", &python), &site);

    let typescript = folder.join("typescript");
    let tour = typescript.join("tour.ts");
    fs::copy(root().join("examples/typescript/tour.ts"), &tour).unwrap();
    done(
        Command::new(typescript.join("node_modules/.bin/tsc"))
            .current_dir(&typescript)
            .args(["--strict", "--skipLibCheck", "--target", "es2022"])
            .args(["--module", "nodenext", "--outDir", "built", "tour.ts"]),
    );
    let mut command = Command::new("node");
    toured(command.arg(typescript.join("built/tour.js")), &site);
}

/// And again, by which nothing is onboarded twice.
#[test]
fn a_platform_onboards_its_customers_with_one_key() {
    let site = Site::start();
    for _ in 0..2 {
        let mut command = Command::new("python3");
        command.arg(root().join("examples/saas/onboard.py"));
        command
            .args([&site.url(), "5", "200"])
            .env("PACELINE_API_KEY", KEY);
        let said = done(&mut command);
        let words: Vec<_> = said.lines().collect();
        let expected = [
            "onboarded 5 customers with 15 endpoints",
            "sent 200 events, which are 400 deliveries",
            "delivered 400",
            "audited: 15 endpoints were never sent faster than 50 a second",
        ];
        assert_eq!(words, expected, "{said}");
    }
}
