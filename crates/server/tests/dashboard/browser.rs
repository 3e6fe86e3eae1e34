//! In a real browser: sign in, change a limit and see the chart follow, pause
//! and resume, replay a dead letter, and look at every page.

use fantoccini::Locator;
use http::StatusCode;
use serde_json::{Value, json};
use server::receiver::Behaviour;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use crate::driver::{Browser, pictures};
use crate::routes::looked_at;
use crate::site::{KEY, Site};

async fn signed_in(site: &Site) -> Browser {
    let browser = Browser::start().await;
    browser.client.goto(&site.url("/dashboard")).await.unwrap();
    browser.fill("#key", KEY).await;
    browser.click("form button.main").await;
    browser.until("h1", |text| text == "Overview").await;
    browser
}

pub(crate) async fn look(site: &Site, browser: &Browser, path: &str) {
    browser.client.goto(&site.url(path)).await.unwrap();
}

/// What was measured last, in starts per second.
fn rate(text: &str) -> u32 {
    text.parse().unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_is_changed_and_the_chart_follows() {
    let site = Site::start().await;
    let id = site.destination(1, "orders", 5);
    site.flood(&id, 4_000);
    let browser = signed_in(&site).await;
    browser
        .click(&format!("a[href='/dashboard/destinations/{id}']"))
        .await;
    browser.until("#stream", |text| text == "Live.").await;
    browser
        .until("#rate", |text| (4..=5).contains(&rate(text)))
        .await;

    browser.fill("#per_second", "20").await;
    browser.click("#what-if").await;
    browser
        .until("#preview h3", |text| text.contains("20/s"))
        .await;
    browser.is_quiet().await;
    browser.click("#save-preview").await;
    browser
        .until("#limit", |text| text.starts_with("20/s"))
        .await;
    browser
        .until("#rate", |text| (16..=20).contains(&rate(text)))
        .await;

    browser.click("#pause").await;
    browser.until("#state", |text| text == "paused").await;
    browser.until("#rate", |text| text == "0").await;
    browser
        .until("#why", |text| text.to_lowercase().contains("paused"))
        .await;
    browser.click("#resume").await;
    browser.until("#rate", |text| rate(text) > 10).await;
    browser.is_quiet().await;
    browser.end().await;
}

/// Nothing is tried twice, so what fails is dead at once.
fn dead_letters(site: &Site, number: u32, count: usize) -> String {
    let answer = |status| Behaviour::Answer {
        status,
        after: Duration::ZERO,
    };
    site.receiver
        .set_behaviour(number, answer(StatusCode::INTERNAL_SERVER_ERROR));
    let id = site.destination(number, "invoices", 50);
    let breaker = format!("/v1/destinations/{id}/breaker");
    site.api("PATCH", &breaker, json!({"opens_after_failures": 0}));
    let retries = format!("/v1/destinations/{id}/retries");
    site.api("PUT", &retries, json!({"max_tries": 1}));
    site.flood(&id, count);
    id
}

pub(crate) async fn until_dead(site: &Site, id: &str, count: usize) {
    let path = format!("/v1/dead-letters?destination_id={id}");
    let began = tokio::time::Instant::now();
    while site.api("GET", &path, json!({}))["dead_letters"]
        .as_array()
        .unwrap()
        .len()
        < count
    {
        assert!(began.elapsed() < Duration::from_secs(60), "not dead");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// It has failed three times of three, and stands first once it has for two seconds.
async fn until_failing(site: &Site, browser: &Browser) {
    let began = tokio::time::Instant::now();
    loop {
        look(site, browser, "/dashboard").await;
        let script = "const e = document.querySelector('section[aria-labelledby=attention] .tone');
            return e ? e.textContent : ''";
        let found = browser.client.execute(script, vec![]).await.unwrap();
        let found = found.as_str().unwrap_or_default().to_owned();
        if found.starts_with("failing: 3 of 3, last 500 ") {
            return;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{found:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_is_replayed() {
    let site = Site::start().await;
    let id = dead_letters(&site, 1, 3);
    until_dead(&site, &id, 3).await;
    site.receiver.set_behaviour(1, Behaviour::ACCEPT);
    let browser = signed_in(&site).await;
    until_failing(&site, &browser).await;
    look(&site, &browser, "/dashboard/dead-letters").await;
    browser.click("button.replay").await;
    browser.until("#delivered", |text| text == "1").await;
    browser
        .until("#replay-state", |text| text == "completed")
        .await;
    look(
        &site,
        &browser,
        &format!("/dashboard/dead-letters?destination={id}"),
    )
    .await;
    browser.click("#replay-all").await;
    let said = |text: &str| text.contains("takes about") && text.contains("half of the limit");
    browser.until("#preview", said).await;
    browser
        .until("h1", |text| text == "Replay 2 dead letters?")
        .await;
    browser.is_accessible("replay preview").await;
    browser.picture("replay-preview").await;
    browser.click("#sure").await;
    browser.until("#delivered", |text| text == "2").await;
    look(&site, &browser, "/dashboard/dead-letters").await;
    browser.until("p.calm", |text| text == "None.").await;
    browser.is_quiet().await;
    browser.end().await;
}

/// To the arrow keys; and what is longer ago than a few minutes is counted as well.
#[tokio::test(flavor = "multi_thread")]
async fn drawings_say_their_numbers() {
    const LEFT: &str = "\u{E012}";
    const END: &str = "\u{E010}";
    let site = Site::start().await;
    let id = dead_letters(&site, 1, 3);
    until_dead(&site, &id, 3).await;
    let browser = signed_in(&site).await;
    let page = format!("/dashboard/destinations/{id}?over=");
    look(&site, &browser, &format!("{page}15m")).await;
    let svg = async |css| (browser.client.find(Locator::Css(css)).await).unwrap();
    svg("#outcomes").await.send_keys(LEFT).await.unwrap();
    let said = |text: &str| text.ends_with(" UTC: 0 delivered, 3 failed");
    browser.until("figure[data-bars] output", said).await;
    let there = "document.querySelector('#outcomes-title').scrollIntoView()";
    browser.client.execute(there, vec![]).await.unwrap();
    browser.picture("outcomes").await;
    svg("#chart").await.send_keys(END).await.unwrap();
    let said = |text: &str| text.starts_with("started ") && text.contains("limit 50 a second");
    browser.until("figure[data-line] output", said).await;
    let last = format!("[data-live='{id}.last-failure']");
    browser
        .until(&last, |text| {
            text.starts_with("500, ") && text.ends_with(" ago")
        })
        .await;
    let began = tokio::time::Instant::now();
    loop {
        look(&site, &browser, &format!("{page}7d")).await;
        let output = svg("figure[data-bars] output").await.text().await.unwrap();
        if output == "0 delivered, 3 failed" {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{output}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let hour = format!("[data-live='{id}.failed-hour']");
    browser.until(&hour, |text| text == "100 %").await;
    let said = |text: &str| text.contains("24 h") && text.contains("0 %");
    browser.until("#statistics", said).await;
    let path = format!("/v1/destinations/{id}/statistics");
    let told = site.api("GET", &path, json!({}));
    for span in ["last_day", "last_30_days"] {
        let counts = ["requests", "succeeded", "failed"].map(|name| told[span][name].as_u64());
        assert_eq!(counts, [Some(3), Some(0), Some(3)], "{told}");
        assert_eq!(told[span]["succeeded_percent"], 0.0, "{told}");
        assert!(told[span]["p50_ms"].is_number(), "{told}");
    }
    browser.is_accessible("destination over a week").await;
    browser.is_quiet().await;
    browser.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_of_0_is_asked_about() {
    let site = Site::start().await;
    let id = site.destination(1, "orders", 20);
    let browser = signed_in(&site).await;
    look(&site, &browser, &format!("/dashboard/destinations/{id}")).await;
    browser.fill("#per_second", "0").await;
    browser.click("#save").await;
    browser
        .until("h1", |text| text == "Pause orders with a limit of 0?")
        .await;
    let says = |text: &str| text.contains("Nothing is sent to it any more");
    browser.until("#does", says).await;
    browser.is_accessible("sure").await;
    browser.is_quiet().await;
    browser.picture("sure").await;
    browser.click("#sure").await;
    browser.until("h1", |text| text == "orders").await;
    let now = site.api("GET", &format!("/v1/destinations/{id}"), json!({}));
    assert_eq!(now["limits"]["per_second"], 0, "{now}");
    browser.is_quiet().await;
    browser.end().await;
}

/// As a customer does it: add it, try it, see what it answered, mend it.
#[tokio::test(flavor = "multi_thread")]
async fn a_destination_is_added_and_tried() {
    let site = Site::start().await;
    let browser = signed_in(&site).await;
    browser.click("#add").await;
    browser
        .until("h1", |text| text == "Add a destination")
        .await;
    browser.is_accessible("add").await;
    browser.picture("add").await;
    let missing = site.receiver.url(1).replace("127.0.0.1", "127.0.0.2");
    browser.fill("#url", "ftp://example.com/").await;
    browser.fill("#name", "orders").await;
    browser.fill("#event_types", "order.*").await;
    browser.click("#save").await;
    browser
        .until("#problem", |text| text.starts_with("url: "))
        .await;
    browser.is_accessible("add-again").await;
    browser.was_refused("422").await;
    browser.fill("#url", &missing).await;
    browser.click("#save").await;
    browser.until("h1", |text| text == "orders").await;
    browser
        .until("#secret", |text| text.starts_with("whsec_"))
        .await;
    browser.is_accessible("added").await;

    // Nobody listens there.
    browser.click("#trial").await;
    browser.until("h1", |text| text == "Event").await;
    browser.until("#main", |text| text.contains("failed")).await;
    browser.client.back().await.unwrap();
    let list = site.api("GET", "/v1/destinations", json!({}));
    let id = list["destinations"][0]["id"].as_str().unwrap();
    look(&site, &browser, &format!("/dashboard/destinations/{id}")).await;
    browser.click("#edit").await;
    browser.until("h1", |text| text == "Change orders").await;
    browser.is_accessible("change").await;
    browser.fill("#url", &site.receiver.url(1)).await;
    browser.click("#delivery summary").await;
    browser.is_accessible("delivery").await;
    let there = "document.querySelector('#delivery').scrollIntoView()";
    browser.client.execute(there, vec![]).await.unwrap();
    browser.picture("delivery").await;
    browser.fill("#timeout_ms", "5000").await;
    browser.fill("#max_tries", "3").await;
    browser.click("#save").await;
    browser.until("h1", |text| text == "orders").await;
    browser.click("#trial").await;
    browser.until("h1", |text| text == "Event").await;
    let says = |text: &str| text.contains("paceline.test") && text.contains("succeeded");
    browser.until("#main", says).await;
    browser.is_accessible("trial").await;
    let retries = site.api("GET", &format!("/v1/destinations/{id}/retries"), json!({}));
    assert_eq!(
        (&retries["timeout_ms"], &retries["max_tries"]),
        (&json!(5_000), &json!(3))
    );
    browser.is_quiet().await;
    browser.end().await;
}

/// What was wrong stands there again, and the bar follows what is deleted.
#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_gets_a_tier_of_its_own_and_is_deleted() {
    let site = Site::start().await;
    let browser = signed_in(&site).await;
    look(&site, &browser, "/dashboard/tiers").await;
    browser.fill("#name", "large").await;
    browser.fill("#per_second", "50").await;
    browser.fill("#ceiling_per_second", "0").await;
    browser.click("#save").await;
    let says = |text: &str| text.starts_with("ceiling.per_second: must be above 0");
    browser.until("#problem", says).await;
    browser.is_accessible("tiers again").await;
    browser.was_refused("422").await;
    let there = "document.querySelector('#add').scrollIntoView()";
    browser.client.execute(there, vec![]).await.unwrap();
    browser.picture("refused").await;
    assert_eq!(value(&browser, "#per_second").await, "50");
    browser.fill("#ceiling_per_second", "75.5").await;
    browser.click("#save").await;
    browser.until("h1", |text| text == "Tier large").await;
    assert_eq!(value(&browser, "#ceiling_per_second").await, "75.5");

    look(&site, &browser, "/dashboard/tenants").await;
    browser.fill("#name", "Acme").await;
    browser.fill("#external_id", "acme").await;
    browser.click("#save").await;
    browser.until("h1", |text| text == "Acme").await;
    let choose = "document.querySelector('#tier').value = 'large'";
    browser.client.execute(choose, vec![]).await.unwrap();
    browser.fill("#tenant-name", "Acme Ltd").await;
    browser.click("#save").await;
    browser
        .until(".sub", |text| text.starts_with("Tier large"))
        .await;
    let acme = site.api("GET", "/v1/tenants/acme", json!({}));
    assert_eq!(
        (&acme["name"], &acme["tier"]),
        (&json!("Acme Ltd"), &json!("large"))
    );

    browser.click("#delete").await;
    browser
        .until("h1", |text| {
            text == "Delete Acme Ltd, with all that it has?"
        })
        .await;
    browser.click("#sure").await;
    let says = |text: &str| text.starts_with("It is being deleted, since");
    browser.until("#deletion", says).await;
    browser.until("#stream", |text| text == "Live.").await;
    browser.until("#left", |text| text == "0").await;
    browser.is_accessible("being deleted").await;
    browser.picture("deletion").await;
    browser.is_quiet().await;
    browser.end().await;
}

/// Wherever on the page one looks.
#[tokio::test(flavor = "multi_thread")]
async fn numbers_that_are_old_say_so_in_sight() {
    let mut site = Site::start().await;
    let id = site.destination(1, "orders", 20);
    let browser = signed_in(&site).await;
    look(&site, &browser, &format!("/dashboard/destinations/{id}")).await;
    browser.until("#stream", |text| text == "Live.").await;
    site.kill();
    browser
        .until("#stream.lost", |text| text.contains("The numbers are old"))
        .await;
    browser
        .until(".stale #state", |text| !text.is_empty())
        .await;
    browser.end().await;
}

/// What is in a text field.
async fn value(browser: &Browser, css: &str) -> String {
    let script = "return document.querySelector(arguments[0]).value";
    let found = browser
        .client
        .execute(script, vec![json!(css)])
        .await
        .unwrap();
    found.as_str().unwrap().to_owned()
}

/// The whole id of an event that is shown by its end: by the mouse and by the keyboard
/// alone, and pasted where it is looked for.
#[tokio::test(flavor = "multi_thread")]
async fn a_short_id_is_copied_whole() {
    const ENTER: &str = "\u{E007}";
    const PASTE: &str = "\u{E009}v";
    let site = Site::start().await;
    let id = site.destination(1, "orders", 20);
    site.flood(&id, 2);
    let browser = signed_in(&site).await;
    look(&site, &browser, "/dashboard/events").await;
    for (row, by_keyboard) in [(1, false), (2, true)] {
        let button = format!("tbody tr:nth-child({row}) button.copy");
        let title = format!("tbody tr:nth-child({row}) td.id a[title]");
        let link = browser.client.find(Locator::Css(&title)).await.unwrap();
        let whole = link.attr("title").await.unwrap().unwrap();
        assert_eq!(whole.len(), 36, "{whole}");
        match by_keyboard {
            true => {
                let button = browser.client.find(Locator::Css(&button)).await.unwrap();
                button.send_keys(ENTER).await.unwrap();
            }
            false => browser.click(&button).await,
        }
        let said = format!("copied {whole}");
        browser.until(&button, |text| text == said).await;
        browser
            .until("#copied", |text| text == format!("{whole} copied"))
            .await;
        browser.fill("#text", PASTE).await;
        assert_eq!(value(&browser, "#text").await, whole);
        browser
            .until(&button, |text| text == format!("copy {whole}"))
            .await;
    }
    // Found by what was pasted, it stands there whole, for those without a script too.
    let pasted = value(&browser, "#text").await;
    browser.click("form[role=search] button").await;
    browser.until("h1", |text| text == "Event").await;
    browser.until(".sub code", |text| text == pasted).await;
    browser.is_quiet().await;
    browser.end().await;
}

/// The lines that are shown, how many there are, and that others come first by now,
/// without a reload; and, once nobody says anything, that this is old.
#[tokio::test(flavor = "multi_thread")]
async fn the_fleet_is_watched() {
    let mut site = Site::start().await;
    let id = site.destination(1, "orders", 20);
    let browser = signed_in(&site).await;
    look(&site, &browser, "/dashboard/fleet").await;
    browser.until("#stream", |text| text == "Live.").await;
    let state = format!("[data-live='{id}.state']");
    browser.until(&state, |text| text == "idle").await;
    browser
        .until("#count", |text| text.starts_with("1 dest"))
        .await;
    browser.until("#moved", str::is_empty).await;
    let path = format!("/v1/destinations/{id}");
    site.api("PATCH", &path, json!({"state": "paused"}));
    browser.until(&state, |text| text == "paused").await;
    site.destination(2, "invoices", 20);
    browser
        .until("#count", |text| text.starts_with("2 dest"))
        .await;
    browser
        .until("#moved", |text| text.contains("reload"))
        .await;
    browser.is_quiet().await;
    site.kill();
    browser
        .until("#stream.lost", |text| text.contains("The numbers are old"))
        .await;
    browser
        .until(&format!(".stale {state}"), |text| text == "paused")
        .await;
    browser.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_page_is_quiet_and_accessible() {
    let site = Site::start().await;
    let orders = site.destination(1, "orders", 20);
    let paused = site.destination(2, "reports", 10);
    site.api(
        "PATCH",
        &format!("/v1/destinations/{paused}"),
        json!({"state": "paused"}),
    );
    let invoices = dead_letters(&site, 3, 12);
    until_dead(&site, &invoices, 12).await;
    site.flood(&orders, 4_000);
    site.flood(&paused, 40);
    describe(&site);
    tell(&site);
    let browser = Browser::start().await;
    look(&site, &browser, "/dashboard").await;
    browser.until("h1", |text| text == "Sign in").await;
    browser.is_accessible("sign-in").await;
    browser.picture("sign-in").await;
    browser.end().await;

    let browser = signed_in(&site).await;
    let destination = format!("/dashboard/destinations/{orders}");
    look(&site, &browser, &destination).await;
    // So that there is a step to see.
    browser.until("#rate", |text| rate(text) >= 18).await;
    browser.fill("#per_second", "40").await;
    browser.click("#save").await;
    browser.until("#rate", |text| rate(text) >= 36).await;
    let newest = |destination: &str| {
        let list = format!("/v1/destinations/{destination}/attempts?limit=1");
        site.api("GET", &list, json!({}))["attempts"][0].clone()
    };
    let (event, attempt) = (newest(&orders), newest(&invoices));
    let replay = json!({"attempt_id": attempt["id"]});
    let replay = &site.api("POST", "/v1/replays", replay)["replays"][0]["id"];
    group(&site, &paused);
    ask_for_more(&site);
    let both = [orders.as_str(), &paused];
    let pages = pages(both, &event["event_id"], &attempt["id"], replay);
    for (name, path, live) in &pages {
        look(&site, &browser, path).await;
        if *live {
            browser.until("#stream", |text| text == "Live.").await;
        }
        browser.picture(name).await;
        browser.unfold().await;
        browser.is_accessible(name).await;
        browser.is_quiet().await;
        browser.is_walked_by_keyboard(name).await;
    }
    audit_as_a_file(&site, &browser).await;
    let long = "a-name-that-nobody-cut-".repeat(8);
    site.destination(4, &long, 5);
    let long = json!({"name": "a-type-".repeat(18), "description": "x".repeat(300)});
    site.api("POST", "/v1/event-types", long);
    browser.be_a_phone().await;
    for (name, path, _) in &pages {
        look(&site, &browser, path).await;
        browser.fits_a_phone(name).await;
    }
    look(&site, &browser, "/dashboard").await;
    browser.picture("phone").await;
    browser.end().await;
}

/// A type of events, with all that can be said of one, and one with a long name.
pub(crate) fn describe(site: &Site) {
    let paid = json!({
        "name": "order.paid", "description": "An order was paid",
        "schema": {"type": "object", "required": ["order"]},
        "example": {"order": 17, "card": {"number": "4711"}}, "redact": ["/card/number"],
    });
    site.api("POST", "/v1/event-types", paid);
    let refunded = json!({"name": "order.refunded", "description": "Money went back"});
    site.api("POST", "/v1/event-types", refunded);
}

/// A limit that this one has together with others, and is in for longer than a line; and its
/// receiver is asked first.
fn group(site: &Site, destination: &str) {
    let limits = json!({"limits": {"per_second": 500, "per_day": 2_000}});
    site.api("PUT", "/v1/limit-groups/reports.example", limits);
    let path = format!("/v1/destinations/{destination}");
    let change = json!({"limit_group": "reports.example", "handshake": "cloud_events"});
    site.api("PATCH", &path, change);
    let long = format!("/v1/limit-groups/{}", "a-group-".repeat(12));
    site.api("PUT", &long, json!({"limits": {"per_second": 1}}));
}

/// A tenant that asks for more than its tier allows.
fn ask_for_more(site: &Site) {
    let acme = json!({"name": "Acme", "external_id": "acme"});
    site.api("POST", "/v1/tenants", acme);
    let key = json!({"scopes": ["manage"]});
    let key = site.api("POST", "/v1/tenants/acme/keys", key);
    let wanted = json!({"destinations": 20_000, "note": "one for each of our shops"});
    let asks = ("POST", "/v1/limit-requests");
    site.api_by(key["key"].as_str().unwrap(), asks, wanted);
}

/// Somebody to be told of what does not happen here.
fn tell(site: &Site) {
    let address = json!({
        "form": "slack", "address": "https://chat.example/hooks/T0/B0",
        "event_types": ["outbox_rejected"], "every_seconds": 3_600,
    });
    site.api("POST", "/v1/notice-addresses", address);
}

/// The page that `paceline audit --output html` makes, without a server.
async fn audit_as_a_file(site: &Site, browser: &Browser) {
    let file = site.audit();
    let url = format!("file://{}", file.display());
    browser.client.goto(&url).await.unwrap();
    browser.until("h1", |text| !text.is_empty()).await;
    browser.until("svg", |_| true).await;
    browser.is_accessible("audit as a file").await;
    browser.is_quiet().await;
    browser.picture("audit-file").await;
    if let Some(folder) = pictures() {
        std::fs::copy(&file, folder.join("audit.html")).unwrap();
    }
}

/// A page: its name, where it is, and whether it is live.
pub(crate) type Looked = (&'static str, String, bool);

/// All pages with something on them. The second destination is asked first.
fn pages(
    [destination, asked_first]: [&str; 2],
    event: &Value,
    attempt: &Value,
    replay: &Value,
) -> Vec<Looked> {
    let still = [
        ("describe", "/dashboard/event-types/order.paid/edit"),
        ("links", "/dashboard/links"),
        ("tenants", "/dashboard/tenants"),
        (
            "tenant",
            "/dashboard/tenants/00000000-0000-0000-0000-000000000001",
        ),
        ("tiers", "/dashboard/tiers"),
        ("tier", "/dashboard/tiers/standard"),
    ];
    let still = still.map(|(name, path)| (name, path.to_owned(), false));
    let asked_first = format!("/dashboard/destinations/{asked_first}");
    let live = [
        ("fleet", "/dashboard/fleet".to_owned(), true),
        ("asked-first", asked_first, true),
    ];
    let mut all = of_a_customer(destination, event, attempt, replay);
    all.extend(still);
    all.extend(live);
    all
}

/// Those that a customer's link opens.
pub(crate) fn of_a_customer(
    destination: &str,
    event: &Value,
    attempt: &Value,
    replay: &Value,
) -> Vec<Looked> {
    let (event, replay) = (event.as_str().unwrap(), replay.as_str().unwrap());
    let destination = format!("/dashboard/destinations/{destination}");
    let still = [
        ("attempts", format!("{destination}/attempts")),
        ("change", format!("{destination}/edit")),
        ("destination-alerts", format!("{destination}/alerts")),
        ("add", "/dashboard/destinations/new".to_owned()),
        ("events", "/dashboard/events".to_owned()),
        ("event", format!("/dashboard/events/{event}")),
        ("all-attempts", "/dashboard/attempts".to_owned()),
        ("attempt", format!("/dashboard/attempts/{attempt}")),
        ("event-types", "/dashboard/event-types".to_owned()),
        ("event-type", "/dashboard/event-types/order.paid".to_owned()),
        ("limit-groups", "/dashboard/limit-groups".to_owned()),
        (
            "limit-group",
            "/dashboard/limit-groups/reports.example".to_owned(),
        ),
        ("dead-letters", "/dashboard/dead-letters".to_owned()),
        ("audit", "/dashboard/audit".to_owned()),
        ("requests", "/dashboard/requests".to_owned()),
        ("alerts", "/dashboard/alerts".to_owned()),
    ];
    let live = [
        ("overview", "/dashboard".to_owned()),
        ("replay", format!("/dashboard/replays/{replay}")),
        ("destination", destination),
    ];
    let still = still.into_iter().map(|(name, path)| (name, path, false));
    let live = live.into_iter().map(|(name, path)| (name, path, true));
    still.chain(live).collect()
}

/// What is looked at elsewhere, or is no page; and why. So are event streams.
const NOT_WALKED: [(&str, &str); 5] = [
    ("/", "it leads to the overview"),
    ("/dashboard/assets/{name}", "what pages are made of"),
    ("/dashboard/sign-in", "before anybody has signed in"),
    ("/dashboard/links/{token}", "by a customer, who opens it"),
    (
        "/dashboard/tenants/{id}/alerts",
        "the page of one's own alerts, for another tenant",
    ),
];

/// A page that the router has and the walk has not would be looked at by nobody.
#[test]
fn each_page_of_the_router_is_looked_at() {
    let routes = looked_at();
    let any = json!("{id}");
    let is_of = |route: &str, path: &str| {
        let (route, path): (Vec<_>, Vec<_>) =
            (route.split('/').collect(), path.split('/').collect());
        let same = |(of, is): (&&str, &&str)| of.starts_with('{') || of == is;
        route.len() == path.len() && route.iter().zip(&path).all(same)
    };
    let mut seen: BTreeSet<&str> = NOT_WALKED.iter().map(|(route, _)| *route).collect();
    seen.extend(routes.iter().filter(|route| route.ends_with("/live")));
    for (name, path, _) in pages(["{id}"; 2], &any, &any, &any) {
        let itself = routes.get(path.as_str()).copied();
        let named = || routes.iter().copied().find(|route| is_of(route, &path));
        let route = itself.or_else(named);
        seen.insert(route.unwrap_or_else(|| panic!("no route has {name}: {path}")));
    }
    let differ: Vec<_> = seen.symmetric_difference(&routes).collect();
    assert!(differ.is_empty(), "in one of them alone: {differ:#?}");
}

/// And none is left of a page that is gone. `scripts/screenshots` takes them.
#[test]
fn each_page_has_its_picture_in_the_documents() {
    let nothing = json!("");
    let pages = pages([""; 2], &nothing, &nothing, &nothing);
    let tests = [include_str!("browser.rs"), include_str!("guests.rs")];
    let others = tests
        .iter()
        .flat_map(|test| test.split(".picture(\"").skip(1))
        .map(|rest| rest.split('"').next().unwrap());
    let names = pages.iter().map(|(name, ..)| *name).chain(others);
    let wanted: BTreeSet<_> = names.map(|name| format!("dashboard-{name}.png")).collect();
    assert!(wanted.len() > 30, "{wanted:?}");

    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let files = std::fs::read_dir(docs.join("images")).unwrap();
    let files = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let taken: BTreeSet<_> = files.filter(|name| name.ends_with(".png")).collect();
    assert_eq!(taken, wanted, "run scripts/screenshots");
    let text = std::fs::read_to_string(docs.join("dashboard.md")).unwrap();
    for name in wanted {
        let shown = format!("](images/{name})");
        assert!(text.contains(&shown), "docs/dashboard.md has no {shown}");
    }
}
