//! A customer of a SaaS, who was given a link to its pages.

use serde_json::json;

use crate::Statement;
use crate::page::{between, failed, seconds};
use crate::site::{Browser, KEY, Site, wait_for};
use crate::stage::{CUSTOMER, Stage, text};

pub(crate) const STATEMENTS: &[Statement] = &[
    (
        "A10: a link is whole, and opens the customer's pages",
        a_link_is_whole,
    ),
    (
        "A1: his endpoint that failed 13 of 13 times is failing on each of his pages",
        his_endpoint_fails,
    ),
    (
        "A1: whoever asks with his key is told the same",
        his_key_is_told,
    ),
    (
        "C: why something waits is said in a sentence and a time",
        he_sees_why,
    ),
    (
        "C: an attempt shows the headers that were sent and what was answered",
        he_sees_an_attempt,
    ),
    (
        "C: what a limit would change is shown before it is set",
        he_tries_a_limit,
    ),
    (
        "C: he says why he wants a higher limit, and sees what was decided",
        he_asks_for_a_limit,
    ),
    (
        "C: a secret is rotated by the link, and shown once",
        a_secret_is_rotated,
    ),
    (
        "A9: replaying all says how many and how long, asks, and is done when it is done",
        he_replays,
    ),
    (
        "A13: events with a failed attempt are not called succeeded",
        failed_events,
    ),
    (
        "A13: after a change of limits the audit names both",
        the_audit_names_both,
    ),
];

/// His browser, in which a link that may change things was opened.
fn his(stage: &Stage) -> Browser<'_> {
    let link = ["link", "create", CUSTOMER, "--may-change"];
    stage.site.open(stage.site.run(KEY, &link).trim())
}

fn page_of(stage: &Stage, name: &str) -> String {
    format!("/dashboard/destinations/{}", stage.id(name))
}

fn a_link_is_whole(stage: &Stage) {
    let browser = stage.site.sign_in(KEY);
    let path = format!("/dashboard/tenants/{}/links", stage.customer.id);
    let made = browser.submit(&path, &[("seconds", "3600")]);
    let of_page = made.attribute("id=\"made\"", "href");
    assert_eq!(made.element("made"), of_page);
    let of_command = stage.site.run(KEY, &["link", "create", CUSTOMER]);
    let path = format!("/v1/tenants/{}/links", stage.customer.id);
    let of_api = stage.site.api(KEY, "POST", &path, &json!({}));
    let of_api = text(&of_api["url"]);
    for link in [of_page.as_str(), of_command.trim(), &of_api] {
        assert!(link.starts_with(&stage.site.public()), "{link}");
        let overview = stage.site.open(link).page("/dashboard");
        assert!(overview.has(CUSTOMER), "{overview}");
        assert_eq!(overview.section("all").row("shop").get("Limit"), "10/s");
    }
}

fn his_endpoint_fails(stage: &Stage) {
    assert_eq!(stage.got("erp").requests, 13);
    let browser = his(stage);
    let overview = browser.page("/dashboard");
    let one = browser.page(&page_of(stage, "erp"));
    let attention = overview.section("attention").row("erp");
    let line = overview.section("all").row("erp");
    let says = "failing: 13 of 13, last 500 ";
    for state in [
        attention.get("State"),
        line.get("State"),
        &one.figure("State"),
    ] {
        assert!(state.starts_with(says), "{state}");
    }
    assert_eq!([attention.tone(), line.tone()], ["bad", "bad"]);
    assert!(one.0.contains("class=\"tone bad\" id=\"state\""));
    assert_eq!(one.figure("Failed, 5 min"), "100 % of 13");
    let shop = overview.section("all").row("shop");
    assert_eq!(shop.get("Failed, 5 min"), "0 %");
}

fn his_key_is_told(stage: &Stage) {
    let key = &stage.customer.key;
    let answer = stage.standing(key, "erp");
    let lately = (&answer["failing"], &answer["failed_lately"]);
    assert_eq!(lately, (&json!(true), &json!(13)));
    assert_eq!(answer["last_failure_status"], 500);
    let of_list = stage.standings(key);
    let of_list = of_list.iter().find(|one| one["name"] == "erp").unwrap();
    assert_eq!(of_list["failing"], true);
    let top = stage.site.run(key, &["top", "--once"]);
    assert_eq!(failed(&top, "erp"), "13 of 13");
    // And over an hour and a day, as the receiver counts.
    let of_day = wait_for("all are counted", || {
        let answer = stage.standing(key, "erp");
        let counted = answer["last_hour"]["failed"] == stage.got("erp").failed;
        counted.then(|| answer["last_day"].clone())
    });
    assert_eq!(of_day["failed_percent"], 100.0);
    // What fails is first.
    let rows = top.lines().skip_while(|line| !line.contains("REASON"));
    assert!(
        rows.skip(1).take(3).any(|line| line.contains("erp")),
        "{top}"
    );
    let failed = wait_for("the survey has it", || {
        let metrics = stage.site.metrics();
        let line = metrics.lines().find(|line| {
            line.starts_with("paceline_destination_failed_ratio{")
                && line.contains(stage.id("erp"))
                && line.contains("over=\"5m\"")
        });
        line.map(str::to_owned)
    });
    assert!(failed.ends_with(" 1"), "{failed}");
}

fn he_sees_why(stage: &Stage) {
    let page = his(stage).page(&page_of(stage, "mill"));
    let next = page.figure("State");
    let next = next.strip_prefix("3 to be retried, the next in ");
    let next = seconds(next.unwrap_or_else(|| panic!("{page}")));
    assert!((2_400.0..=2_700.0).contains(&next), "{page}");
    let why = page.element("why");
    let says = "What waits is to be tried again later";
    assert!(why.starts_with(says), "{why}");
    let (_, wait) = why.split_once(" That is in ").unwrap();
    let wait = seconds(wait.trim_end_matches('.'));
    assert!((2_400.0..=2_700.0).contains(&wait), "{why}");
    let (above, _) = page.0.split_once("id=\"chart\"").unwrap();
    assert!(above.contains("id=\"why\""), "it is beneath the charts");
}

fn he_sees_an_attempt(stage: &Stage) {
    let browser = his(stage);
    let one = browser.page(&page_of(stage, "erp"));
    let attempt = one
        .section("attempts-title")
        .attribute("/attempts/", "href");
    assert!(attempt.starts_with("/dashboard/attempts/"), "{attempt}");
    let page = browser.page(&attempt);
    assert_eq!(page.figure("Status"), "500");
    assert_eq!(page.figure("State"), "failed");
    assert!(page.row("webhook-id").get("Value").len() > 30);
    assert_eq!(page.row("webhook-signature").get("Value"), "hidden");
    assert!(page.section("response-title").has("the receiver says why"));
    assert!(
        page.has(" erp"),
        "it is of a destination with a name: {page}"
    );
}

fn he_tries_a_limit(stage: &Stage) {
    let browser = his(stage);
    let path = format!("{}/limits", page_of(stage, "shop"));
    let six_hours = ("last", "21600");
    let preview = browser.submit(&path, &[("per_second", "5"), six_hours, ("preview", "1")]);
    assert!(preview.has("What if: 5/s"), "{preview}");
    let sent = preview.row("all sent after");
    // Of what came in a minute it does not say that it took hours.
    let after = seconds(sent.get("as proposed"));
    assert!(after < 600.0, "{sent:?}");
    let starts: u32 = preview.row("starts").get("as it was").parse().unwrap();
    assert!(starts >= stage.got("shop").requests, "{preview}");
    let page = browser.page(&page_of(stage, "shop"));
    assert_eq!(page.figure("Limit"), "10/s", "nothing was set");
}

fn he_asks_for_a_limit(stage: &Stage) {
    let browser = his(stage);
    let path = format!("{}/limits", page_of(stage, "shop"));
    let more = [("per_second", "200"), ("last", "900")];
    let preview = browser.submit(&path, &[more.as_slice(), &[("preview", "1")]].concat());
    assert!(preview.0.contains("name=\"note\""), "{preview}");
    let why = ("note", "Black Friday");
    let asked = browser.submit(&path, &[more.as_slice(), &[why, ("save", "1")]].concat());
    assert!(asked.has("An operator will decide"), "{asked}");

    let operator = stage.site.sign_in(KEY);
    let requests = operator.page("/dashboard/requests");
    let rows = requests.rows();
    let row = rows.first().unwrap();
    assert_eq!(row.get("Why"), "Black Friday");
    assert_eq!([row.get("Today"), row.get("Asked for")], ["10/s", "200/s"]);
    assert_eq!(row.get("Destination"), "shop", "by its name");
    assert_eq!(row.get("Tenant"), CUSTOMER);
    let form = between(&requests.0, "action=\"/dashboard/requests/", "\"").unwrap();
    let form = format!("/dashboard/requests/{form}");
    let decided = operator.submit(&form, &[("decision", "approve")]);
    assert_eq!(decided.rows()[0].get("Today"), "200/s", "what holds today");

    let told = browser.page("/dashboard/requests");
    assert_eq!(told.rows()[0].get("State"), "approved");
    let page = browser.page(&page_of(stage, "shop"));
    assert_eq!(page.figure("Limit"), "200/s");
}

fn a_secret_is_rotated(stage: &Stage) {
    let path = page_of(stage, "shop");
    let browser = his(stage);
    let rotated = browser.submit(&format!("{path}/secrets"), &[]);
    assert!(rotated.element("secret").starts_with("whsec_"), "{rotated}");
    assert_eq!(rotated.section("secrets-title").rows().len(), 2);
    assert!(
        !browser.page(&path).0.contains("whsec_"),
        "it is shown once"
    );
}

fn he_replays(stage: &Stage) {
    let (site, key) = (&stage.site, stage.customer.key.as_str());
    let browser = his(stage);
    let dead = browser.page("/dashboard/dead-letters");
    let of_page = dead.rows().iter().filter(|row| row.name() != "").count();
    assert_eq!(of_page, 19, "{dead}");
    let before = ["ledger", "archive"].map(|name| stage.got(name).requests);
    assert_eq!(before, [10, 9]);
    let begun = |site: &Site| {
        site.get(key, "/v1/replays")["replays"]
            .as_array()
            .unwrap()
            .len()
    };

    let asks = browser.submit("/dashboard/replays", &[]);
    assert!(asks.has("Replay 19 dead letters?"), "{asks}");
    assert!(asks.has("which takes about "), "{asks}");
    assert_eq!(asks.row("ledger").get("Dead letters"), "10");
    assert_eq!(asks.row("archive").get("Dead letters"), "9");
    let preview = site.get(key, "/v1/replays/preview");
    assert_eq!(preview["dead_letters"], 19, "{preview}");
    assert!(
        preview["takes_seconds"].as_f64().unwrap() > 0.0,
        "{preview}"
    );
    let asks = site.tried(key, &["dead-letters", "replay", "--all-destinations"]);
    assert!(
        asks.code == Some(2) && asks.err.contains("--yes: this asks"),
        "{asks:?}"
    );
    assert_eq!(begun(site), 0, "it only asks");

    stage.mend("ledger");
    stage.mend("archive");
    let done = browser.submit("/dashboard/replays", &[("sure", "yes")]);
    assert!(done.has("2 replays have begun"), "{done}");
    assert!(done.0.contains("href=\"#replays\""), "{done}");
    assert_eq!(begun(site), 2);
    let ids = wait_for("both are completed", || {
        let all = site.get(key, "/v1/replays");
        let all = all["replays"].as_array().unwrap();
        let is_done = all.iter().all(|one| one["state"] == "completed");
        is_done.then(|| all.iter().map(|one| text(&one["id"])).collect::<Vec<_>>())
    });
    let mut delivered = 0;
    for id in ids {
        let path = format!("/dashboard/replays/{id}");
        let page = wait_for("all were sent", || {
            let page = browser.page(&path);
            (page.figure("Under way") == "0").then_some(page)
        });
        assert!(!page.has("End it"), "it is over: {page}");
        delivered += page.figure("Delivered").parse::<u32>().unwrap();
    }
    let after = ["ledger", "archive"].map(|name| stage.got(name).requests);
    assert_eq!(after, [20, 18], "what the receivers counted");
    assert_eq!(delivered, 19);
    assert_eq!(
        browser
            .page("/dashboard/dead-letters")
            .section("x")
            .rows()
            .len(),
        0
    );
}

fn failed_events(stage: &Stage) {
    let page = his(stage).page("/dashboard/events?state=failed");
    let rows = page.rows();
    assert!(!rows.is_empty(), "{page}");
    for row in rows {
        assert_ne!(row.tone(), "good", "{row:?}");
        assert!(
            !row.get("Attempts in this state").contains("succeeded"),
            "{row:?}"
        );
    }
}

fn the_audit_names_both(stage: &Stage) {
    let page = his(stage).page("/dashboard/audit?period=1h");
    let row = page.row("shop");
    assert_eq!(row.get("Limit"), "200/second, before 10/second");
    let starts = stage.starts(&stage.customer.key, "shop");
    assert_eq!(row.get("Starts"), starts.to_string());
    assert!(
        page.has("Of possible"),
        "another number than what is used: {page}"
    );
}
