//! The programs in `examples/` beside the tours.

use std::process::Command;

use crate::packages::generated;
use crate::site::{KEY, Site, done, root};

/// And again, by which nothing is onboarded twice.
#[test]
fn a_platform_onboards_its_customers_with_one_key() {
    let site = Site::start();
    let client = generated(&site);
    for _ in 0..2 {
        let mut command = Command::new(client.join("venv/bin/python"));
        command.arg(root().join("examples/saas/onboard.py"));
        command
            .args([&site.url(), "5", "200"])
            .env("PYTHONPATH", client.join("python"))
            .env("PACELINE_API_KEY", KEY);
        let said = done(&mut command);
        let words: Vec<_> = said.lines().collect();
        let expected = [
            "onboarded 5 customers with 15 endpoints",
            "sent 200 events, which are 400 deliveries",
            "delivered 400",
            "audited: 15 endpoints were never sent faster than 50 a second",
        ];
        let (link, words) = words.split_last().unwrap();
        assert_eq!(words, expected, "{said}");
        let at = format!(
            "customer-0 mends his endpoints for an hour at {}/dashboard/links/",
            site.url()
        );
        assert!(link.starts_with(&at), "{said}");
    }
}
