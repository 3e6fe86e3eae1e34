//! The programs in `examples/` beside the tours.

use std::process::{Command, Output};
use std::time::Duration;

use http::StatusCode;
use serde_json::{Value, json};
use server::receiver::{Behaviour, Receiver};

use crate::driver::Browser;
use crate::scratch::Scratch;
use crate::site::{KEY, Site, done, root};

/// What the program says, but for the link, which is its last line.
fn onboarded(site: &Site, [customers, events]: [u32; 2]) -> (Vec<String>, String) {
    let mut command = Command::new("python3");
    command.arg(root().join("examples/saas/onboard.py"));
    command
        .args([site.url(), customers.to_string(), events.to_string()])
        .env("PACELINE_API_KEY", KEY);
    let said = done(&mut command);
    let mut words: Vec<_> = said.lines().map(str::to_owned).collect();
    let link = words.pop().unwrap();
    let at = "customer-0 mends his endpoints for an hour at ";
    let link = link.strip_prefix(at).expect(&said).to_owned();
    let links = format!("{}/dashboard/links/", site.url());
    assert!(link.starts_with(&links), "{said}");
    (words, link)
}

fn expected([customers, events]: [u32; 2]) -> Vec<String> {
    let (endpoints, deliveries) = (3 * customers, 2 * events);
    vec![
        format!("onboarded {customers} customers with {endpoints} endpoints"),
        format!("sent {events} events, which are {deliveries} deliveries"),
        format!("delivered {deliveries}"),
        format!("audited: {endpoints} endpoints were never sent faster than 50 a second"),
    ]
}

/// In the place of the program's two helpers: an API whose audit finds this of each
/// customer's third endpoint, and a receiver that has got everything.
fn judged(third: &str) -> Output {
    let api = format!(
        "class Api:
    def __init__(self, url): pass
    def __call__(self, method, path, body=None, customer=None):
        kept = [True, True, {third}]
        audit = [{{'compliant': one}} for one in kept]
        return {{'results': [], 'destinations': audit, 'url': '/dashboard/links/1'}}
"
    );
    let receiver = "class Receiver:
    url = 'http://127.0.0.1:1'
    def wait_for(self, deliveries): return deliveries
";
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("onboard.py");
    std::fs::copy(root().join("examples/saas/onboard.py"), &program).unwrap();
    std::fs::write(folder.path().join("api.py"), api).unwrap();
    std::fs::write(folder.path().join("receiver.py"), receiver).unwrap();
    let mut command = Command::new("python3");
    command.arg(program).args(["http://127.0.0.1:1", "2", "10"]);
    command.output().unwrap()
}

/// So that whoever runs it in a script notices.
#[test]
fn an_endpoint_that_was_sent_to_faster_than_its_limit_fails_the_program() {
    let kept = judged("True");
    assert_eq!(kept.status.code(), Some(0), "{kept:?}");
    let over = judged("customer != 'customer-1'");
    assert_eq!(over.status.code(), Some(1), "{over:?}");
    let said = String::from_utf8_lossy(&over.stdout);
    assert!(said.contains("audited: 5 endpoints"), "{said}");
    let ended = String::from_utf8_lossy(&over.stderr);
    assert_eq!(ended.trim(), "1 endpoints were");
}

/// Three endpoints each and 10,000 events, with one key; and in a browser one of these
/// customers mends an endpoint of his.
#[tokio::test(flavor = "multi_thread")]
async fn a_platform_onboards_fifty_customers_and_one_of_them_mends_his_endpoint() {
    let site = Site::start();
    let all = [50, 10_000];
    let (said, link) = onboarded(&site, all);
    assert_eq!(said, expected(all));
    let receiver = Receiver::start(Behaviour::ACCEPT, 1_000).await.unwrap();
    let browser = Browser::start().await;
    browser.client.goto(&link).await.unwrap();
    browser.until("h1", |text| text == "Customer-0").await;
    browser.click("form button.main").await;
    browser.until("h1", |text| text == "Overview").await;
    for name in ["orders", "shipping", "all"] {
        let has = |text: &str| text.contains(&format!("/customer-0/{name}"));
        browser.until("#main", has).await;
    }
    let id = adds_one_that_fails(&site, &browser, &receiver).await;
    mends_it(&browser, &receiver, (&site, &id)).await;
    resends_what_was_missed(&browser, &receiver, (&site, &id)).await;
    let audit = format!("{}/dashboard/audit", site.url());
    browser.client.goto(&audit).await.unwrap();
    let says = |text: &str| text == "4 destinations, 0 over: no window was over its limit.";
    browser.until("p.notice.good", says).await;
    browser.is_quiet().await;
    browser.end().await;
}

/// As the platform for its customer.
fn for_customer(site: &Site, method: &str, path: &str, body: &Value) -> Value {
    site.acting("customer-0", method, path, body)
}

/// At a path where nobody is, and of which nothing is tried twice.
async fn adds_one_that_fails(site: &Site, browser: &Browser, receiver: &Receiver) -> String {
    let nobody = Behaviour::Answer {
        status: StatusCode::NOT_FOUND,
        after: Duration::ZERO,
    };
    receiver.set_behaviour(1, nobody);
    browser.click("#add").await;
    browser
        .until("h1", |text| text == "Add a destination")
        .await;
    browser.fill("#url", &receiver.url(1)).await;
    browser.fill("#name", "returns").await;
    browser.fill("#event_types", "order.returned").await;
    browser.click("#delivery summary").await;
    browser.fill("#max_tries", "1").await;
    browser.click("#save").await;
    browser.until("h1", |text| text == "returns").await;
    let shown = |text: &str| text.starts_with("whsec_");
    browser.until("#secret", shown).await;
    let id = browser.until("#id", |text| text.len() == 36).await;
    browser.click("#trial").await;
    browser.until("h1", |text| text == "Event").await;
    let says = |text: &str| text.contains("404") && text.contains("dead letter");
    browser.until("#main", says).await;
    // Meanwhile the platform has something for him.
    for order in 0..3 {
        let event = json!({"type": "order.returned", "payload": {"returned": order}});
        let event = for_customer(site, "POST", "/v1/events", &event);
        assert!(event["destinations"].to_string().contains(&id), "{event}");
    }
    until_dead(site, &id, 3).await;
    id
}

/// Beside the event of the trial.
async fn until_dead(site: &Site, id: &str, events: usize) {
    let path = format!("/v1/dead-letters?destination_id={id}&type=order.returned");
    let began = tokio::time::Instant::now();
    loop {
        let dead = for_customer(site, "GET", &path, &json!({}));
        if dead["dead_letters"].as_array().unwrap().len() >= events {
            return;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{dead}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// It is at another path: he tries that, and sees what it is sent.
async fn mends_it(browser: &Browser, receiver: &Receiver, (site, id): (&Site, &str)) {
    let page = format!("{}/dashboard/destinations/{id}", site.url());
    browser.client.goto(&page).await.unwrap();
    browser.click("#edit").await;
    browser.until("h1", |text| text == "Change returns").await;
    browser.fill("#url", &receiver.url(2)).await;
    browser.click("#save").await;
    browser.until("h1", |text| text == "returns").await;
    browser.click("#trial").await;
    browser.until("h1", |text| text == "Event").await;
    browser
        .until("#main", |text| text.contains("succeeded"))
        .await;
    let carried = |text: &str| text.contains("\"test\"");
    browser.until("#payload", carried).await;
    assert_eq!(receiver.total(), 1 + 3 + 1, "two trials, and three missed");
}

async fn resends_what_was_missed(
    browser: &Browser,
    receiver: &Receiver,
    (site, id): (&Site, &str),
) {
    let page = format!("{}/dashboard/destinations/{id}", site.url());
    browser.client.goto(&page).await.unwrap();
    browser.click("#only-some summary").await;
    browser.fill("#missed-type", "order.returned").await;
    browser.fill("#missed-status", "4xx").await;
    browser.click("#resend").await;
    browser
        .until("h1", |text| text == "Resend what returns has missed?")
        .await;
    let says = |text: &str| text.contains("Only those with type order.returned, status 4xx.");
    browser.until("#does", says).await;
    browser.click("#sure").await;
    browser.until("#delivered", |text| text == "3").await;
    let ended = |text: &str| text == "completed";
    browser.until("#replay-state", ended).await;
    assert_eq!(receiver.total(), 8);
    // What one of them carried, found by the status that it had.
    let attempts = format!("{page}/attempts?status=404&type=order.returned");
    browser.client.goto(&attempts).await.unwrap();
    browser.click("tbody td.id a").await;
    browser.until("h1", |text| text == "Event").await;
    browser
        .until("#payload", |text| text.contains("\"returned\""))
        .await;
}

/// And again, by which nothing is onboarded twice.
#[test]
fn customers_are_onboarded_once() {
    let site = Site::start();
    for _ in 0..2 {
        let few = [5, 200];
        let (said, _) = onboarded(&site, few);
        assert_eq!(said, expected(few));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn customers_are_onboarded_over_a_database_as_well() {
    let database = Scratch::migrated("").await;
    let site = Site::over(&database.url());
    let few = [5, 200];
    let (said, _) = onboarded(&site, few);
    assert_eq!(said, expected(few));
}

#[test]
fn a_platform_takes_thirty_lines() {
    let program = std::fs::read_to_string(root().join("examples/saas/onboard.py")).unwrap();
    // Not what it says of itself first.
    let code = program.splitn(3, "\"\"\"").nth(2).unwrap();
    let code = code.lines().map(str::trim);
    let lines = code.filter(|line| !line.is_empty() && !line.starts_with('#'));
    let lines = lines.count();
    assert!((20..=30).contains(&lines), "{lines}");
}
