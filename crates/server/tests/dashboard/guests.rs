//! Customers in a real browser: with a link of a platform's, in a tab and in its frame.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use fantoccini::Locator;
use http::StatusCode;
use serde_json::json;
use server::receiver::Behaviour;

use crate::browser::{Looked, describe, look, of_a_customer, until_dead};
use crate::driver::Browser;
use crate::site::Site;

/// A platform's own page, on a site of its own: to browsers `localhost` is another one
/// than `127.0.0.1`.
struct Platform {
    origin: String,
    listener: TcpListener,
}

impl Platform {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        Self {
            origin: format!("http://localhost:{port}"),
            listener,
        }
    }

    /// Serves its one page until the test's process ends.
    fn frames(self, url: &str) -> String {
        let page = format!(
            "<!doctype html><html lang=en><title>Acme</title><h1>Acme</h1>\
             <iframe id=portal title=Webhooks src=\"{url}\" width=1000 height=700></iframe>"
        );
        let Self { origin, listener } = self;
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                // A browser may open more than it uses.
                let page = page.clone();
                thread::spawn(move || answer(stream, &page));
            }
        });
        origin
    }
}

fn answer(mut stream: TcpStream, page: &str) -> std::io::Result<()> {
    let lines = BufReader::new(stream.try_clone()?).lines();
    let head = lines
        .map_while(Result::ok)
        .take_while(|line| !line.is_empty());
    head.for_each(drop);
    let length = page.len();
    write!(
        stream,
        "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: {length}\r\n\
         connection: close\r\n\r\n{page}"
    )
}

/// What a customer's link opens.
fn link(site: &Site) -> String {
    let tenant = site.api("POST", "/v1/tenants", json!({"name": "a customer"}));
    let links = format!("/v1/tenants/{}/links", tenant["id"].as_str().unwrap());
    let made = site.api("POST", &links, json!({"may_change": true}));
    site.url(made["url"].as_str().unwrap())
}

async fn enter_frame(browser: &Browser, page: &str) {
    browser.client.goto(page).await.unwrap();
    enter(browser).await;
}

async fn enter(browser: &Browser) {
    let frame = browser.client.find(Locator::Css("#portal")).await.unwrap();
    frame.enter_frame().await.unwrap();
}

/// Its cookie goes through other sites' frames, and its forms are done there; but only
/// in those of the platform.
#[tokio::test(flavor = "multi_thread")]
async fn a_customer_adds_a_destination_in_the_platforms_frame() {
    let (platform, stranger) = (Platform::new(), Platform::new());
    let site = Site::start_with(&[
        "--frame-ancestors",
        &platform.origin,
        "--portal-name",
        "Acme hooks",
        "--portal-accent",
        "#ffd400",
    ])
    .await;
    let link = link(&site);
    let (platform, stranger) = (platform.frames(&link), stranger.frames(&link));
    let browser = Browser::start().await;
    enter_frame(&browser, &platform).await;
    browser.until("h1", |text| text == "a customer").await;
    browser.picture("link").await;
    browser.click("form button.main").await;
    browser.until("h1", |text| text == "Overview").await;
    browser.until(".brand", |text| text == "Acme hooks").await;
    browser.click("#add").await;
    browser
        .until("h1", |text| text == "Add a destination")
        .await;
    browser.picture("framed").await;
    browser.fill("#url", &site.receiver.url(1)).await;
    browser.fill("#name", "orders").await;
    browser.click("#save").await;
    browser
        .until("#secret", |text| text.starts_with("whsec_"))
        .await;
    browser.is_accessible("framed, in yellow").await;
    browser.click("#pause").await;
    browser.until("#state", |text| text == "paused").await;
    browser.until("#stream", |text| text == "Live.").await;
    browser.is_quiet().await;
    // The platform's page is loaded again, and with it the frame: without a click.
    browser.client.enter_parent_frame().await.unwrap();
    enter_frame(&browser, &platform).await;
    browser.until("h1", |text| text == "Overview").await;
    // Nobody signs in with a key there: it is said, and no form is shown.
    browser.click("form.who button").await;
    browser
        .until("main", |text| text.contains("You are signed out here"))
        .await;
    browser.is_accessible("signed out, framed").await;
    browser.is_walked_by_keyboard("signed out, framed").await;
    browser.client.enter_parent_frame().await.unwrap();
    let narrow = "document.querySelector('#portal').width = 390";
    browser.client.execute(narrow, vec![]).await.unwrap();
    enter(&browser).await;
    let is_narrow = "const done = arguments[arguments.length - 1];
        const look = () => innerWidth === 390 ? done(null) : setTimeout(look, 20);
        look()";
    let narrow = browser.client.execute_async(is_narrow, vec![]);
    narrow.await.unwrap();
    browser.fits_a_phone("signed out, framed").await;

    browser.client.enter_parent_frame().await.unwrap();
    enter_frame(&browser, &stranger).await;
    let form = browser.client.find(Locator::Css("form")).await;
    assert!(form.is_err(), "it is in a stranger's frame");
    browser.end().await;
}

/// A customer as the program in `examples/saas` onboards them: an endpoint, eight events,
/// and a link.
fn onboarded(site: &Site) -> String {
    let tenant = site.api("POST", "/v1/tenants", json!({"name": "customer-0"}));
    let of_tenant = |what| format!("/v1/tenants/{}/{what}", tenant["id"].as_str().unwrap());
    let scopes = json!({"scopes": ["ingest", "manage"]});
    let key = site.api("POST", &of_tenant("keys"), scopes);
    let key = key["key"].as_str().unwrap();
    let theirs = |path: &str, body| site.api_by(key, ("POST", path), body);
    let url = site.receiver.url(2);
    let orders = json!({"url": url, "name": "customer-0/orders", "event_types": ["order.paid"]});
    theirs("/v1/destinations", orders);
    let event = json!({"type": "order.paid", "payload": {"order": 1}});
    theirs("/v1/events/batch", json!({"events": vec![event; 8]}));
    let rights = json!({"may_change": true, "may_read_payloads": true});
    let made = site.api("POST", &of_tenant("links"), rights);
    site.url(made["url"].as_str().unwrap())
}

/// A customer with something on each page that his link opens; the link, and the pages.
async fn with_everything(site: &Site) -> (String, Vec<Looked>) {
    describe(site);
    let tenant = json!({"name": "a customer", "external_id": "customer"});
    site.api("POST", "/v1/tenants", tenant);
    let scopes = json!({"scopes": ["ingest", "manage", "read"]});
    let key = site.api("POST", "/v1/tenants/customer/keys", scopes);
    let key = key["key"].as_str().unwrap();
    let theirs = |method: &str, path: &str, body| site.api_by(key, (method, path), body);
    let group = json!({"limits": {"per_second": 5}});
    theirs("PUT", "/v1/limit-groups/reports.example", group);
    let fails = Behaviour::Answer {
        status: StatusCode::INTERNAL_SERVER_ERROR,
        after: Duration::ZERO,
    };
    site.receiver.set_behaviour(2, fails);
    let [orders, invoices] = [(1, "orders"), (2, "invoices")].map(|(number, name)| {
        let new = json!({"name": name, "url": site.receiver.url(number),
            "event_types": [name], "limit_group": "reports.example"});
        let made = theirs("POST", "/v1/destinations", new);
        made["id"].as_str().unwrap().to_owned()
    });
    let once = format!("/v1/destinations/{invoices}/retries");
    theirs("PUT", &once, json!({"max_tries": 1}));
    for name in ["orders", "invoices"] {
        let event = json!({"type": name, "payload": {"of": name}});
        theirs("POST", "/v1/events", event);
    }
    until_dead(site, &invoices, 1).await;
    let attempt = |destination: &str| {
        let list = format!("/v1/destinations/{destination}/attempts");
        theirs("GET", &list, json!({}))["attempts"][0].clone()
    };
    let (sent, dead) = (attempt(&orders), attempt(&invoices));
    let replay = json!({"attempt_id": dead["id"]});
    let replay = &theirs("POST", "/v1/replays", replay)["replays"][0]["id"];
    let more = json!({"destinations": 20_000, "note": "one for each of our shops"});
    theirs("POST", "/v1/limit-requests", more);
    let mut pages = of_a_customer(&orders, &sent["event_id"], &dead["id"], replay);
    let larger = format!("/dashboard/requests?destination={orders}");
    pages.push(("larger batches", larger, false));
    let rights = json!({"may_change": true, "may_read_payloads": true});
    let link = site.api("POST", "/v1/tenants/customer/links", rights);
    (site.url(link["url"].as_str().unwrap()), pages)
}

async fn opens(browser: &Browser) {
    browser.click("form button.main").await;
    browser.until("h1", |text| text == "Overview").await;
}

/// From the one that opens the link on.
#[tokio::test(flavor = "multi_thread")]
async fn every_page_of_a_link_is_quiet_and_accessible() {
    let site = Site::start().await;
    let (link, pages) = with_everything(&site).await;
    let browser = Browser::start().await;
    browser.client.goto(&link).await.unwrap();
    browser.until("h1", |text| text == "a customer").await;
    browser.is_accessible("link").await;
    browser.is_walked_by_keyboard("link").await;
    opens(&browser).await;
    for (name, path, live) in &pages {
        look(&site, &browser, path).await;
        if *live {
            browser.until("#stream", |text| text == "Live.").await;
        }
        browser.unfold().await;
        browser.is_accessible(name).await;
        browser.is_quiet().await;
        browser.is_walked_by_keyboard(name).await;
    }
    browser.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_page_of_a_link_fits_a_phone() {
    let site = Site::start().await;
    let (link, pages) = with_everything(&site).await;
    let browser = Browser::start().await;
    browser.be_a_phone().await;
    browser.client.goto(&link).await.unwrap();
    browser.until("h1", |text| text == "a customer").await;
    browser.fits_a_phone("link").await;
    opens(&browser).await;
    for (name, path, _) in &pages {
        look(&site, &browser, path).await;
        browser.fits_a_phone(name).await;
    }
    browser.end().await;
}

/// A platform's customer helps himself: adds an endpoint, tries it, mends it, sees what it gets, and gets what it has missed.
#[tokio::test(flavor = "multi_thread")]
async fn a_platforms_customer_helps_himself() {
    let site = Site::start().await;
    let link = onboarded(&site);
    let browser = Browser::start().await;
    browser.client.goto(&link).await.unwrap();
    browser.click("form button.main").await;
    browser.until("h1", |text| text == "Overview").await;
    browser
        .until("main", |text| text.contains("customer-0/orders"))
        .await;

    let missing = site.receiver.url(1).replace("127.0.0.1", "127.0.0.2");
    browser.click("#add").await;
    browser.fill("#url", &missing).await;
    browser.fill("#name", "mine").await;
    browser.fill("#event_types", "order.*").await;
    browser.click("#save").await;
    browser
        .until("#secret", |text| text.starts_with("whsec_"))
        .await;
    browser.click("#trial").await;
    browser.until("h1", |text| text == "Event").await;
    browser.until("main", |text| text.contains("failed")).await;
    browser.click("tbody th a").await;
    browser.click("#edit").await;
    browser.fill("#url", &site.receiver.url(1)).await;
    browser.click("#save").await;
    browser.until("h1", |text| text == "mine").await;
    browser.click("#trial").await;
    browser
        .until("main", |text| text.contains("succeeded"))
        .await;
    browser
        .until("#payload", |text| text.contains("\"test\":true"))
        .await;
    // The last one: on a busy machine one may have been claimed before it and not sent.
    browser
        .click("tbody tr:last-child td a[href*='/dashboard/attempts/']")
        .await;
    browser
        .until("#payload", |text| text.contains("\"test\":true"))
        .await;
    browser
        .until("main", |text| {
            text.contains("webhook-signature") && text.contains("v1,")
        })
        .await;

    browser.client.back().await.unwrap();
    browser.click("tbody th a").await;
    browser.click("#resend").await;
    browser
        .until("h1", |text| text == "Resend what mine has missed?")
        .await;
    browser.click("#sure").await;
    browser.until("#delivered", |text| text == "8").await;
    browser
        .client
        .goto(&site.url("/dashboard/audit"))
        .await
        .unwrap();
    browser.until("h1", |text| text == "Audit").await;
    browser.until("main", |text| text.contains("mine")).await;
    browser.is_quiet().await;
    browser.end().await;
}
