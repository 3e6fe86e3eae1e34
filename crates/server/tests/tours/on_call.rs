//! Somebody on call, with the operator's key.

use chrono::DateTime;
use domain::explain::Reason;
use serde_json::{Value, json};

use crate::Statement;
use crate::page::{Page, Row, between, cell, failed, seconds};
use crate::receivers::SLOW;
use crate::site::{KEY, wait_for, wait_until};
use crate::stage::{NARROW, Stage};

pub(crate) const STATEMENTS: &[Statement] = &[
    (
        "A3: of two limits, the one that binds says when a backlog has drained",
        two_limits_drain,
    ),
    (
        "A3: the plan says the same of the same backlog",
        a_plan_drains_as_it_would,
    ),
    (
        "A3: what a full hour holds back drains no sooner than its next attempt",
        a_full_hour_drains,
    ),
    (
        "A3: what its max_in_flight holds back drains as its requests end",
        a_narrow_one_drains,
    ),
    (
        "A3: nobody knows when a backlog behind an open breaker drains",
        a_breaker_drains,
    ),
    (
        "A3: what is configured is exported as it is configured",
        configured_is_exported,
    ),
    (
        "A4: sixty a minute is drawn in minutes, against sixty, and was kept",
        a_minute_is_drawn,
    ),
    (
        "A1: what fails each time is failing, with its last status, wherever it stands",
        failing_is_failing,
    ),
    (
        "A1: what fails mostly is green nowhere",
        failing_is_not_green,
    ),
    (
        "A1: whatever is red needs attention, whether or not its last answer was good",
        red_needs_attention,
    ),
    (
        "A1: three failures in ten are a share that the receiver counts as well",
        a_share_fails,
    ),
    (
        "A1: a metric tells which destinations fail",
        failing_is_exported,
    ),
    ("A2: page, answer and terminal give one reason", one_reason),
    (
        "A2: what waits for a retry says how many and when",
        retries_say_when,
    ),
    (
        "A5: attention counts all who need it, the worst first, with a link to the rest",
        attention_counts_all,
    ),
    (
        "A6: the runbook's commands and pages take any tenant's destination",
        any_tenants_destination,
    ),
    (
        "D: fleet page, `top --all` and operations events name all tenants' destinations",
        all_tenants_are_seen,
    ),
    (
        "D: since when it fails is drawn, delivered and failed apart, up to seven days",
        outcomes_are_drawn,
    ),
    (
        "D: the audit counts what the receivers counted",
        the_audit_counts,
    ),
    (
        "D: that numbers are old is said above them",
        stale_is_said_on_top,
    ),
    (
        "D: no alert stands for ever where customers bring the endpoints",
        alerts_clear,
    ),
    (
        "A13: where no connection was made there is no latency",
        no_latency,
    ),
];

/// Kinds that fail each time, with what is said of their last failure.
const FAILING: [(&str, u32, &str); 5] = [
    ("fail", 6, "500"),
    ("unauthorized", 6, "401"),
    ("unprocessable", 6, "422"),
    ("hang", 3, "without an answer"),
    ("closed", 6, "without an answer"),
];

fn all_that_fail() -> impl Iterator<Item = (String, &'static str)> {
    (FAILING.into_iter()).flat_map(|(kind, count, status)| {
        (1..=count).map(move |place| (format!("{kind}-{place}"), status))
    })
}

/// The page of one of the operator's destinations.
fn page_of(stage: &Stage, name: &str) -> Page {
    let path = format!("/dashboard/destinations/{}", stage.id(name));
    stage.site.sign_in(KEY).page(&path)
}

fn top(stage: &Stage) -> String {
    stage.site.run(KEY, &["top", "--once", "--count", "100"])
}

/// The value of a destination's metric, once it is there.
fn metric(stage: &Stage, name: &str, more: &str, of: &str) -> f64 {
    wait_for(name, || {
        found(&stage.site.metrics(), name, more, stage.id(of))
    })
}

fn found(metrics: &str, name: &str, more: &str, id: &str) -> Option<f64> {
    let line = metrics.lines().find(|line| {
        line.starts_with(&format!("{name}{{")) && line.contains(id) && line.contains(more)
    });
    line?.rsplit_once(' ')?.1.parse().ok()
}

/// What a limit of so many a second takes for these, give or take the second that is
/// under way and a hundredth for the margin.
#[track_caller]
fn takes(drains: f64, backlog: f64, per_second: f64) {
    let expected = backlog / per_second;
    let is_so = (expected - 2.0..=expected * 1.02 + 2.0).contains(&drains);
    assert!(is_so, "{backlog} at {per_second}/s drain in {drains} s");
}

fn number(text: &str) -> f64 {
    let text = text.replace(',', "");
    text.parse()
        .unwrap_or_else(|_| panic!("{text} is no number"))
}

fn two_limits_drain(stage: &Stage) {
    let answer = stage.standing(KEY, "two-limits");
    let of = |field: &str| answer[field].as_f64().unwrap_or_else(|| panic!("{answer}"));
    takes(of("drains_in_seconds"), of("backlog"), 2.0);
    let page = page_of(stage, "two-limits");
    let backlog = number(&page.figure("Backlog"));
    takes(seconds(&page.figure("Drains in")), backlog, 2.0);
    let overview = stage.site.sign_in(KEY).page("/dashboard").section("all");
    let row = overview.row("two-limits");
    takes(
        seconds(row.get("Drains in")),
        number(row.get("Backlog")),
        2.0,
    );
    let top = top(stage);
    let backlog = number(&cell(&top, "two-limits", "BACKLOG"));
    takes(
        seconds(&cell(&top, "two-limits", "DRAINS IN")),
        backlog,
        2.0,
    );
    let (drain, backlog) = surveyed(stage, "two-limits");
    takes(drain, backlog, 2.0);
}

/// How long its backlog drains by the metric, and how much that is.
fn surveyed(stage: &Stage, name: &str) -> (f64, f64) {
    wait_for("the survey", || {
        let metrics = stage.site.metrics();
        let of = |metric| found(&metrics, metric, "", stage.id(name));
        let drain = of("paceline_destination_drain_seconds")?;
        Some((drain, of("paceline_destination_backlog_attempts")?))
    })
}

fn a_plan_drains_as_it_would(stage: &Stage) {
    let limits = ["--limit", "5/s", "--limit", "50000/d"];
    let plan = [&["plan", "--destination", "two-limits"], limits.as_slice()].concat();
    let plan = stage.site.json(KEY, &plan);
    let of = |field: &str| plan[field].as_f64().unwrap_or_else(|| panic!("{plan}"));
    takes(of("backlog_drains_in_seconds"), of("backlog"), 5.0);
}

fn a_full_hour_drains(stage: &Stage) {
    let answer = stage.standing(KEY, "per-hour");
    assert_eq!(stage.got("per-hour").requests, 1_000);
    let at = |field: &str| DateTime::parse_from_rfc3339(answer[field].as_str().unwrap()).unwrap();
    let next = (at("next_at") - at("at")).as_seconds_f64();
    assert!(next > 1_800.0, "{answer}");
    let drains = answer["drains_in_seconds"].as_f64().unwrap();
    // It is rounded to milliseconds.
    assert!((next - 0.001..=next + 60.0).contains(&drains), "{answer}");
    let page = page_of(stage, "per-hour");
    let shown = seconds(&page.figure("Drains in"));
    assert!((next - 120.0..=next + 60.0).contains(&shown), "{page}");
    assert_eq!(page.figure("State"), "at its limit");
    let top = seconds(&cell(&top(stage), "per-hour", "DRAINS IN"));
    assert!((next - 120.0..=next + 60.0).contains(&top), "{top}");
}

/// How it stands once a scheduler has looked at it lately: on a machine that does much
/// else, none may have for seconds.
fn drains(stage: &Stage, name: &str) -> Value {
    wait_until("how long it takes to drain", || {
        let answer = stage.standing(KEY, name);
        match answer["drains_in_seconds"].is_number() {
            true => Ok(answer),
            false => Err(answer.to_string()),
        }
    })
}

/// Between one and two times what a request takes, for each.
fn a_narrow_one_drains(stage: &Stage) {
    let takes = |drains: f64, backlog: f64| {
        let each = drains / backlog;
        let expected = SLOW.as_secs_f64();
        assert!(
            (expected * 0.9..=expected * 2.0).contains(&each),
            "{backlog} drain in {drains} s"
        );
    };
    let answer = drains(stage, NARROW);
    let of = |field: &str| answer[field].as_f64().unwrap_or_else(|| panic!("{answer}"));
    takes(of("drains_in_seconds"), of("backlog"));
    assert_eq!(answer["drain_unknown"], Value::Null);
    let page = page_of(stage, NARROW);
    takes(
        seconds(&page.figure("Drains in")),
        number(&page.figure("Backlog")),
    );
    let plan = ["plan", "--destination", NARROW, "--limit", "1000/s"];
    let plan = stage.site.json(KEY, &plan);
    let of = |field: &str| plan[field].as_f64().unwrap_or_else(|| panic!("{plan}"));
    takes(of("backlog_drains_in_seconds"), of("backlog"));
    let (drain, backlog) = surveyed(stage, NARROW);
    takes(drain, backlog);
}

fn a_breaker_drains(stage: &Stage) {
    let answer = stage.standing(KEY, "breaker");
    assert_eq!(answer["reason"], "breaker");
    assert_eq!(answer["drains_in_seconds"], Value::Null);
    let page = page_of(stage, "breaker");
    assert_eq!(page.figure("Drains in"), "unknown");
    let why = page.element("drain-unknown");
    assert!(why.contains("its breaker is open"), "{why}");
    assert!(
        why.contains(answer["drain_unknown"].as_str().unwrap()),
        "{why}"
    );
    assert_eq!(page.figure("State"), "breaker open");
    assert_eq!(cell(&top(stage), "breaker", "DRAINS IN"), "-");
    // As the scheduler saw it when it last looked: on a busy machine that was before.
    let metrics = wait_until("an open breaker among the metrics", || {
        let metrics = stage.site.metrics();
        let open = "paceline_destination_breaker_open";
        match found(&metrics, open, "", stage.id("breaker")) {
            Some(1.0) => Ok(metrics),
            otherwise => Err(format!("{otherwise:?}")),
        }
    });
    let drain = "paceline_destination_drain_seconds";
    assert_eq!(found(&metrics, drain, "", stage.id("breaker")), None);
}

fn configured_is_exported(stage: &Stage) {
    let name = "paceline_destination_limit_starts_per_second";
    let configured = metric(stage, name, "limit=\"configured\"", "two-limits");
    let answer = stage.standing(KEY, "two-limits");
    assert_eq!(answer["configured_per_second"], json!(configured));
    assert!((configured - 2.0).abs() < f64::EPSILON, "{configured}");
}

fn a_minute_is_drawn(stage: &Stage) {
    // It shows whole steps: the last start may be later than the last of them.
    let page = wait_for("the chart has the starts", || {
        let page = page_of(stage, "per-minute");
        (page.element("rate") != "0").then_some(page)
    });
    assert_eq!(page.element("chart-title"), "Starts in any minute");
    let rate = number(&page.element("rate"));
    assert!(rate <= 60.0 && rate <= f64::from(stage.got("per-minute").requests));
    let top = between(&page.0, "data-live=\"chart.top\">", " a minute<");
    assert!(number(top.unwrap()) >= 60.0, "{page}");
    let chart = between(&page.0, "<svg id=\"chart\"", "</svg>").unwrap();
    let highest = |class: &str| {
        let path = between(chart, &format!("class=\"{class}\" d=\""), "\"").unwrap();
        // `M0.0 240.0L8.0 12.5` or `M0.0 12.5H960.0`: the second of each pair.
        let points = path.split(['M', 'L']).filter_map(|point| {
            let (_, y) = point.split_once(' ')?;
            y.split('H').next()?.parse::<f64>().ok()
        });
        points.fold(f64::MAX, f64::min)
    };
    assert!(highest("limit") < 240.0, "the limit is drawn: {chart}");
    assert!(highest("line") >= highest("limit"), "it was kept: {chart}");
}

fn failing_is_failing(stage: &Stage) {
    let overview = stage.site.sign_in(KEY).page("/dashboard?all=true");
    let (attention, top) = (overview.section("attention"), top(stage));
    let standings = stage.site.run(KEY, &["destination", "standings"]);
    for (name, status) in all_that_fail() {
        let sent = stage.standing(KEY, &name)["answered_lately"].as_u64();
        let sent = sent.unwrap();
        // Nobody is there to count what a closed port got.
        if !name.starts_with("closed") {
            assert_eq!(sent, u64::from(stage.got(&name).requests), "{name}");
        }
        let says = format!("failing: {sent} of {sent}, last {status} ");
        for page in [attention.row(&name), overview.section("all").row(&name)] {
            assert!(page.get("State").starts_with(&says), "{name}: {page:?}");
            assert!(page.get("State").ends_with(" ago"), "{name}: {page:?}");
            assert_eq!(page.tone(), "bad", "{name}");
            assert_eq!(page.get("Failed, 5 min"), "100 %", "{name}");
        }
        let all = format!("{sent} of {sent}");
        assert_eq!(failed(&top, &name), all, "{name}");
        assert_eq!(failed(&standings, &name), all, "{name}");
        let answer = stage.standing(KEY, &name);
        assert_eq!(answer["failing"], true, "{name}");
        assert_eq!(answer["failed_lately"], sent, "{name}");
        let last = &answer["last_failure_status"];
        assert_eq!(
            *last,
            status.parse::<u16>().map_or(Value::Null, Value::from)
        );
        assert!(answer["last_failure_at"].is_string(), "{name}");
    }
    let page = page_of(stage, "fail-1");
    assert!(
        page.figure("State")
            .starts_with("failing: 5 of 5, last 500 ")
    );
    assert_eq!(page.figure("Failed, 5 min"), "100 % of 5");
}

fn failing_is_not_green(stage: &Stage) {
    let overview = stage.site.sign_in(KEY).page("/dashboard?all=true");
    let mut failing = 0;
    for row in overview.rows() {
        let share = row.get("Failed, 5 min").split(" %").next();
        let share = share.and_then(|share| share.parse::<f64>().ok());
        if share.is_some_and(|share| share >= 50.0) {
            failing += 1;
            assert_eq!(row.tone(), "bad", "{row:?}");
        }
    }
    assert!(failing > 20, "{overview}");
}

fn red_needs_attention(stage: &Stage) {
    let browser = stage.site.sign_in(KEY);
    assert_eq!(stage.got("mostly-1").failed, 6);
    // The tally goes round every ten seconds.
    wait_until("all that are red need attention", || {
        let overview = browser.page("/dashboard?all=true");
        let attention = overview.section("attention").rows();
        let red = overview.section("all").rows().into_iter();
        let red: Vec<_> = red.filter(|row| row.tone() == "bad").collect();
        assert!(red.iter().any(|row| row.name() == "mostly-1"), "{overview}");
        let is_there = |row: &&Row| attention.iter().any(|one| one.name() == row.name());
        match red.iter().find(|row| !is_there(row)) {
            None => Ok(()),
            Some(row) => Err(format!("{row:?}")),
        }
    });
}

fn a_share_fails(stage: &Stage) {
    let overview = stage.site.sign_in(KEY).page("/dashboard").section("all");
    for name in ["flaky-1", "flaky-2", "flaky-3"] {
        let got = stage.got(name);
        assert_eq!((got.requests, got.failed), (10, 3), "{name}");
        assert_eq!(overview.row(name).get("Failed, 5 min"), "30 %", "{name}");
        let answer = stage.standing(KEY, name);
        let answer = (&answer["failed_lately"], &answer["answered_lately"]);
        assert_eq!(answer, (&json!(got.failed), &json!(got.requests)), "{name}");
        assert_eq!(failed(&top(stage), name), "3 of 10");
    }
}

fn failing_is_exported(stage: &Stage) {
    let name = "paceline_destination_failed_ratio";
    let failing = metric(stage, name, "over=\"5m\"", "fail-1");
    assert!((failing - 1.0).abs() < f64::EPSILON, "{failing}");
    let flaky = metric(stage, name, "over=\"5m\"", "flaky-1");
    assert!((flaky - 0.3).abs() < 1e-9, "{flaky}");
}

/// Those for which nothing changes while this looks.
fn at_rest(stage: &Stage) -> Vec<(String, Value)> {
    let standings = stage.standings(KEY).into_iter();
    let named = standings.map(|one| (one["name"].as_str().unwrap().to_owned(), one));
    let moves = |name: &str| ["two-limits", "per-minute", NARROW].contains(&name);
    named.filter(|(name, _)| !moves(name)).collect()
}

fn one_reason(stage: &Stage) {
    let overview = stage.site.sign_in(KEY).page("/dashboard").section("all");
    let standings = stage.site.run(KEY, &["destination", "standings"]);
    for (name, answer) in at_rest(stage) {
        let reason: Reason = answer["reason"].as_str().unwrap().parse().unwrap();
        let row = overview.row(&name);
        let state = row.get("State");
        let is_idle = reason == Reason::NoWork && state == "idle";
        let fails = answer["failing"] == true && state.starts_with("failing: ");
        let same = state.contains(reason.label());
        assert!(same || fails || is_idle, "{name}: {state}, and {reason:?}");
        let binds = matches!(reason, Reason::Window | Reason::Spacing);
        assert_eq!(state == "at its limit", binds, "{name}: {state}");
        assert_eq!(cell(&standings, &name, "REASON"), reason.as_str(), "{name}");
    }
    for name in [
        "flaky-1",
        "fail-1",
        "too-many-1",
        "breaker",
        "per-hour",
        "ok-1",
    ] {
        let why = page_of(stage, name).element("why");
        // The page says beside it how long that is.
        let why = why.split(" That is in ").next().unwrap_or_default();
        let answer = stage.standing(KEY, name);
        assert_eq!(answer["explanation"], why, "{name}");
        let said = stage.site.run(KEY, &["destination", "explain", name]);
        assert_eq!(said.lines().next(), Some(why), "{name}");
    }
}

fn retries_say_when(stage: &Stage) {
    let page = page_of(stage, "flaky-1");
    let state = page.figure("State");
    let next = state.strip_prefix("3 to be retried, the next in ");
    let next = seconds(next.unwrap_or_else(|| panic!("{state}")));
    assert!((2_400.0..=2_700.0).contains(&next), "{state}");
    assert_eq!(stage.got("flaky-1").failed, 3);
}

fn attention_counts_all(stage: &Stage) {
    let browser = stage.site.sign_in(KEY);
    let first = browser.page("/dashboard");
    let shown = first.section("attention").rows().len();
    let more = first.element("more-trouble");
    let more: usize = more.strip_suffix(" more").unwrap().parse().unwrap();
    let link = first.attribute("a href=\"/dashboard?all", "href");
    let all = browser.page(&link).section("attention");
    assert_eq!(all.rows().len(), shown + more);
    assert_eq!(all.rows()[0].name(), "breaker", "what harms most is first");
    let standings = stage.standings(KEY);
    for one in &standings {
        let needs = one["failing"] == true
            || ["asked", "refused", "breaker"].contains(&one["reason"].as_str().unwrap());
        let name = one["name"].as_str().unwrap();
        let is_there = all.rows().iter().any(|row| row.name() == name);
        assert!(is_there || !needs, "{one} needs somebody");
    }
    let open = standings.iter().filter(|one| one["reason"] == "breaker");
    let open = open.count() as f64;
    wait_for("the survey has them", || {
        let metrics = stage.site.metrics();
        let line = metrics
            .lines()
            .find(|line| line.starts_with("paceline_breakers_open"));
        let counted: f64 = line?.rsplit_once(' ')?.1.parse().ok()?;
        ((counted - open).abs() < f64::EPSILON).then_some(())
    });
}

fn any_tenants_destination(stage: &Stage) {
    let (site, id) = (&stage.site, stage.id("oven"));
    let explained = site.json(KEY, &["destination", "explain", id]);
    assert_eq!(explained["name"], "oven");
    assert_eq!(explained["failed_lately"], stage.got("oven").failed);
    let health = site.json(KEY, &["destination", "health", id]);
    assert_eq!(health["breaker"]["state"], "closed");
    let paused = site.json(KEY, &["destination", "pause", id]);
    assert_eq!(paused["state"], "paused");
    assert_eq!(stage.standing(&stage.other.key, "oven")["reason"], "paused");
    let resumed = site.json(KEY, &["destination", "resume", id]);
    assert_eq!(resumed["state"], "active");
    let page = page_of(stage, "oven");
    assert!(page.has("You look at Naïve Café"), "{page}");
    assert!(
        page.figure("State")
            .starts_with("failing: 4 of 4, last 500 ")
    );
}

fn all_tenants_are_seen(stage: &Stage) {
    let (site, browser) = (&stage.site, stage.site.sign_in(KEY));
    let keys = [KEY, &stage.customer.key, &stage.other.key];
    let count: usize = keys.iter().map(|key| stage.standings(key).len()).sum();
    let fleet = browser.page("/dashboard/fleet");
    let says = format!("{count} destinations, ");
    assert!(fleet.element("count").starts_with(&says), "{fleet}");
    let erp = browser.page("/dashboard/fleet?search=erp");
    let row = erp.row("erp");
    assert_eq!(row.get("Tenant"), "Müller & Söhne");
    assert!(row.get("State").starts_with("failing: 13 of 13, last 500 "));
    assert_eq!(row.tone(), "bad");
    let top = site.run(KEY, &["top", "--all", "--once", "--count", "100"]);
    assert!(top.contains(&says), "{top}");
    assert_eq!(failed(&top, "erp"), "13 of 13");
    assert_eq!(cell(&top, "erp", "TENANT"), "Müller & Söhne");
    // The breaker's opening is told with names.
    let events = ["operations", "events", "--installation"];
    let events = wait_for("operators are told", || {
        let events = site.run(KEY, &events);
        events.contains("breaker").then_some(events)
    });
    let line = events.lines().find(|line| line.contains(" breaker "));
    assert!(
        line.is_some_and(|line| line.contains(" default ")),
        "{events}"
    );
    let events = ["operations", "events", "--installation", "--type"];
    let of_type = |word| site.run(KEY, &[events.as_slice(), &[word]].concat());
    let opened = of_type("breaker_opened");
    let mut lines = opened.lines().skip(1).peekable();
    assert!(lines.peek().is_some(), "{opened}");
    assert!(
        lines.all(|line| line.contains(" breaker_opened ")),
        "{opened}"
    );
    assert_eq!(
        of_type("backlog_normal").lines().count(),
        1,
        "only the header"
    );
}

fn outcomes_are_drawn(stage: &Stage) {
    let browser = stage.site.sign_in(KEY);
    let (fails, flaky) = (stage.got("fail-1"), stage.got("flaky-1"));
    for over in ["15m", "7d"] {
        for (name, got) in [("fail-1", fails), ("flaky-1", flaky)] {
            let path = format!("/dashboard/destinations/{}?over={over}", stage.id(name));
            let delivered = got.requests - got.failed;
            let counts = format!("{delivered} delivered, {} failed", got.failed);
            // What has just ended is counted a moment later.
            wait_until(&counts, || {
                let page = browser.page(&path);
                let says = page.attribute("id=\"outcomes\"", "aria-label");
                let is_so = says.contains(&counts);
                is_so.then_some(()).ok_or(says)
            });
        }
    }
}

fn the_audit_counts(stage: &Stage) {
    let names = ["ok-1", "fail-1", "flaky-1"];
    // The last half second is judged half a second later.
    let audit = wait_until("the audit", || {
        let audit = stage.site.get(KEY, "/v1/compliance?limit=100");
        let destinations = audit["destinations"].as_array().unwrap();
        let counts = names.map(|name| {
            let one = destinations.iter().find(|one| one["name"] == name).unwrap();
            (one["starts"].clone(), stage.starts(KEY, name))
        });
        let agree = counts.iter().all(|(judged, started)| judged == started);
        agree.then_some(audit).ok_or(format!("{counts:?}"))
    });
    assert_eq!(audit["compliant"], true);
    let destinations = audit["destinations"].as_array().unwrap();
    let browser = stage.site.sign_in(KEY);
    let page = browser.page("/dashboard/audit?period=1h&all=true");
    let says = format!("{} destinations, 0 over", destinations.len());
    assert!(page.has(&says), "{page}");
    let row = page.row("fail-1");
    assert_eq!(row.get("Starts"), stage.starts(KEY, "fail-1").to_string());
    assert_eq!((row.get("Verdict"), row.tone()), ("held", "good"));
}

fn stale_is_said_on_top(stage: &Stage) {
    let page = stage.site.sign_in(KEY).page("/dashboard");
    let (top, _) = page.0.split_once("<main").unwrap();
    assert!(top.contains("id=\"stream\" role=\"status\""), "{top}");
}

fn alerts_clear(_: &Stage) {
    let rules = include_str!("../../../../k8s/components/monitoring/rules.yaml");
    for (alert, words) in [
        (
            "PacelineBreakersOpening",
            "min_over_time(paceline_breakers_open[1h])",
        ),
        ("PacelineDeadLetters", "share1h > "),
        (
            "PacelineUnderDelivery",
            "reason!~\"asked|refused|breaker|smart|concurrency\"",
        ),
        (
            "PacelineDestinationFailing",
            "paceline_destination_failed_ratio{over=\"5m\"}) >= ",
        ),
    ] {
        let rule = between(rules, &format!("alert: {alert}\n"), "annotations:");
        assert!(rule.unwrap().contains(words), "{alert}: {rule:?}");
    }
}

fn no_latency(stage: &Stage) {
    let overview = stage.site.sign_in(KEY).page("/dashboard").section("all");
    let row = overview.row("closed-1");
    assert_eq!([row.get("p50"), row.get("p99")], ["–", "–"]);
}
