//! A developer, on the first day: the command line, the API, the README.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::Statement;
use crate::site::{KEY, Said, Site, paceline, said, wait_for};
use crate::stage::{OTHER, Stage, text};

pub(crate) const STATEMENTS: &[Statement] = &[
    (
        "B: serve says where the pages and the data are, and what to type next",
        serve_says_where,
    ),
    ("B: each answer has the id of its request", answers_have_ids),
    (
        "A7: a valid file that is too long is told by its size",
        a_long_file,
    ),
    (
        "A8: a body that is too long is told with the payload's bound, as body",
        two_bounds,
    ),
    (
        "A12: the README promises nothing that is there already",
        the_readme,
    ),
    ("A12: the tour sets what it uses", the_tour_sets_variables),
    (
        "A12: what a script wants of `event send` it gets",
        a_script_takes_the_id,
    ),
    ("D: an event's page says who got it", who_got_it),
    ("A13: `--type none` clears the types", type_none),
    ("A13: an event for nobody says so", an_event_for_nobody),
    (
        "A13: broken JSON in an import is called that",
        a_broken_line,
    ),
    ("B, errors: a name does where an id does", names_do),
    (
        "B, errors: the API speaks the reader's words",
        words_of_the_api,
    ),
    (
        "B, errors: the command line says what to say instead",
        words_of_flags,
    ),
    (
        "B, errors: a URL with a path is told to have none",
        a_url_with_a_path,
    ),
    (
        "B, errors: a closed network is told by its flag, and to the operator alone",
        a_closed_network,
    ),
    (
        "B, errors: the command line speaks https, and sends no key in clear",
        no_key_in_clear,
    ),
    (
        "what cannot be taken back is asked first",
        what_is_asked_first,
    ),
    (
        "B, errors: a wrong key is told which are right",
        a_wrong_key,
    ),
    ("A11: of what is gone nothing is accepted", a_lost_file),
];

fn serve_says_where(stage: &Stage) {
    let said = stage.site.wrote("said");
    let link = (said.lines()).find_map(|line| line.strip_prefix("Dashboard: "));
    let link = link.and_then(|line| line.split_once(" (signs you in once, within 15 minutes"));
    let (link, _) = link.unwrap_or_else(|| panic!("{said}"));
    let browser = stage.site.open(link);
    assert!(browser.page("/dashboard").has("Overview"));
    let file = fs::canonicalize(stage.site.folder())
        .unwrap()
        .join("paceline.db");
    let database = match stage.is_sqlite {
        true => format!("Database: {}", file.display()),
        // Its password is nobody's to read.
        false => "Database: postgres://".to_owned(),
    };
    assert!(said.contains(&database), "{said}");
    // As it can be typed: by its path, unless this machine has one on the path.
    let program = fs::canonicalize(env!("CARGO_BIN_EXE_paceline")).unwrap();
    let next = |program: &str| {
        format!("Next, in another terminal in this folder: {program} destination create")
    };
    let is_said = |program: &str| said.contains(&next(program));
    assert!(
        is_said(&program.to_string_lossy()) || is_said("paceline"),
        "{said}"
    );
}

fn answers_have_ids(stage: &Stage) {
    for path in ["/v1/destinations", "/v1/nothing", "/dashboard/sign-in"] {
        let (_, head, _) = crate::ask::send(stage.site.port, ("GET", path), &[], "").unwrap();
        assert!(head.to_lowercase().contains("\r\nx-request-id: "), "{head}");
    }
    let (_, problem) = stage.site.answer(KEY, "GET", "/v1/events/x", &Value::Null);
    assert!(problem["request_id"].is_string(), "{problem}");
}

fn a_long_file(stage: &Stage) {
    let file = stage.site.folder().join("p1m.json");
    fs::write(&file, format!("\"{}\"", "x".repeat(1_000_007))).unwrap();
    let send = ["event", "send", "--destination", "ok-1", "@p1m.json"];
    let said = stage.site.tried(KEY, &send);
    says(&said, "the payload is 1,000,009 bytes; at most 262,144");
    assert!(!said.err.contains("not JSON"), "{said:?}");
}

#[track_caller]
fn says(said: &Said, words: &str) {
    assert_ne!(said.code, Some(0), "{said:?}");
    assert!(said.err.contains(words), "{words:?} is not in {said:?}");
}

fn two_bounds(stage: &Stage) {
    // What is announced as too long is refused unread.
    let mut announced = TcpStream::connect(("127.0.0.1", stage.site.port)).unwrap();
    let head = "POST /v1/events HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\
        content-type: application/json\r\ncontent-length: 1000100\r\n";
    write!(announced, "{head}authorization: Bearer {KEY}\r\n\r\n").unwrap();
    let mut answer = String::new();
    announced.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    let (_, problem) = answer.split_once("\r\n\r\n").unwrap();
    let problem: Value = serde_json::from_str(problem).unwrap();
    assert_eq!(problem["field"], "body");
    let detail = text(&problem["detail"]);
    assert!(detail.contains("payload at most 262144"), "{detail}");

    let event = json!({"destination_id": stage.id("ok-1"), "payload": "x".repeat(300_000)});
    let (status, problem) = stage.site.answer(KEY, "POST", "/v1/events", &event);
    assert_eq!((status, &problem["field"]), (413, &json!("payload")));
    assert!(text(&problem["detail"]).contains("262144"), "{problem}");
}

const README: &str = include_str!("../../../../README.md");

fn the_readme(_: &Stage) {
    assert!(!README.contains("Not there yet"));
    for word in ["docs/dashboard.md", "docs/traces.md"] {
        assert!(README.contains(word), "{word}");
    }
}

fn the_tour_sets_variables(_: &Stage) {
    let (_, tour) = README.split_once("\n## A tour\n").unwrap();
    let (tour, _) = tour.split_once("\n### Run it distributed\n").unwrap();
    let blocks = tour.split("```sh\n").skip(1);
    // The last is the reader's, where there is a Postgres.
    let mut set = BTreeSet::from(["PATH", "PWD", "PACELINE_DATABASE_URL"]);
    for line in blocks.flat_map(|block| block.split("```").next().unwrap_or_default().lines()) {
        let used = line.split('$').skip(1).map(|rest| {
            let end = rest.find(|letter: char| !letter.is_ascii_uppercase() && letter != '_');
            &rest[..end.unwrap_or(rest.len())]
        });
        for name in used.filter(|name| !name.is_empty()) {
            assert!(set.contains(name), "nobody has set ${name}: {line}");
        }
        let assigned = line.trim_start_matches("export ").split_once('=');
        set.extend(assigned.map(|(name, _)| name));
    }
    assert!(set.contains("ID") && set.contains("EVENT"), "{set:?}");
}

fn a_script_takes_the_id(stage: &Stage) {
    let before = stage.got("ok-1").requests;
    let send = ["event", "send", "--destination", "ok-1", "{}"];
    let sent = stage.site.json(KEY, &send);
    let event = text(&sent["id"]);
    let shown = wait_for("it is delivered", || {
        let shown = stage.site.json(KEY, &["event", "show", &event]);
        (shown["attempts"][0]["state"] == "succeeded").then_some(shown)
    });
    assert_eq!(shown["attempts"][0]["status"], 204);
    assert_eq!(stage.got("ok-1").requests, before + 1);
}

fn who_got_it(stage: &Stage) {
    let names = ["ok-1", "ok-2", "ok-3"];
    for name in names {
        let path = format!("/v1/destinations/{}", stage.id(name));
        let types = json!({"event_types": ["for.three"]});
        stage.site.api(KEY, "PATCH", &path, &types);
    }
    let sent = json!({"type": "for.three", "payload": 1});
    let sent = stage.site.api(KEY, "POST", "/v1/events", &sent);
    let path = format!("/dashboard/events/{}", text(&sent["id"]));
    let page = stage.site.sign_in(KEY).page(&path);
    let rows = page.rows();
    let shown: BTreeSet<_> = rows.iter().map(|row| row.name()).collect();
    assert_eq!(shown, BTreeSet::from(names), "{page}");
}

fn type_none(stage: &Stage) {
    let cleared = ["destination", "update", "slow-1", "--type", "none"];
    let cleared = stage.site.json(KEY, &cleared);
    assert_eq!(cleared["event_types"], json!([]));
    let alias = [
        "destination",
        "update",
        "slow-1",
        "--event-type",
        "slow-1.changed",
    ];
    let alias = stage.site.json(KEY, &alias);
    assert_eq!(alias["event_types"], json!(["slow-1.changed"]));
}

fn an_event_for_nobody(stage: &Stage) {
    let lost = stage
        .site
        .tried(KEY, &["event", "send", "1", "--type", "order.payd"]);
    let hint = "no destination subscribes to order.payd, or its filter does not take this: nothing \
                will be sent";
    assert!(lost.code == Some(0) && lost.err.contains(hint), "{lost:?}");
    let strict = ["event", "send", "1", "--type", "order.payd", "--strict"];
    says(
        &stage.site.tried(KEY, &strict),
        "no destination subscribes to order.payd, or its filter does not take",
    );
}

fn a_broken_line(stage: &Stage) {
    let good = json!({"destination_id": stage.id("ok-2"), "payload": 1});
    let file = stage.site.folder().join("events.ndjson");
    fs::write(&file, format!("{good}\n{{\"bad\"\n")).unwrap();
    let import = stage.site.tried(KEY, &["event", "import", "events.ndjson"]);
    assert_eq!(import.code, Some(1), "{import:?}");
    let line = import.out.lines().find(|line| line.starts_with("line 2: "));
    let line = line.unwrap_or_else(|| panic!("{import:?}"));
    assert!(
        line.contains("JSON") && !line.contains("unknown field"),
        "{line}"
    );
}

fn names_do(stage: &Stage) {
    let site = &stage.site;
    let shown = site.json(KEY, &["destination", "show", "ok-2"]);
    assert_eq!(shown["id"], stage.id("ok-2"));
    let sent = site.json(KEY, &["event", "send", "--destination", "ok-2", "1"]);
    assert_eq!(sent["destinations"], json!([stage.id("ok-2")]));
    let tenant = site.json(KEY, &["tenant", "show", OTHER]);
    assert_eq!(tenant["id"], stage.other.id.as_str());
    for (command, kind) in [
        (["destination", "show", "acme"].as_slice(), "destination"),
        (
            &["event", "send", "--destination", "acme", "1"],
            "destination",
        ),
        (&["tenant", "show", "acme"], "tenant"),
    ] {
        let help = format!("`paceline {kind} list` shows their names");
        says(&site.tried(KEY, command), &help);
    }
}

fn words_of_the_api(stage: &Stage) {
    let url = "https://example.com/";
    for (path, body, field, detail) in [
        (
            "/v1/events",
            json!({"destination_id": "shop", "payload": 1}),
            "destination_id",
            "must be the id of a destination",
        ),
        (
            "/v1/events",
            json!({"type": "a", "payload_base64": "@@@"}),
            "payload_base64",
            "is not base64: character 1",
        ),
        (
            "/v1/destinations",
            json!({"url": url, "limits": {"per_second": 1.5}}),
            "limits.per_second",
            "must be a whole number",
        ),
        (
            "/v1/destinations",
            json!({"url": url, "limits": {"per_second": "50"}}),
            "limits.per_second",
            "must be a whole number",
        ),
        (
            "/v1/destinations",
            json!({"url": url, "limits": {"per_second": 5}, "unlimited": true}),
            "unlimited",
            "cannot stand beside a limit: leave one of them out",
        ),
    ] {
        let (status, problem) = stage.site.answer(KEY, "POST", path, &body);
        assert_eq!(status, 422, "{body}: {problem}");
        let said = (&problem["field"], &problem["detail"]);
        assert_eq!(said, (&json!(field), &json!(detail)), "{body}");
    }
    let path = "/v1/dead-letters?status=abc";
    let (_, problem) = stage.site.answer(KEY, "GET", path, &Value::Null);
    assert_eq!(problem["detail"], "must be a status, 100 to 599");
}

fn words_of_flags(stage: &Stage) {
    let site = &stage.site;
    let nobody = site.tried(KEY, &["event", "send", "{}"]);
    says(&nobody, "<--destination <ID>|--type <TYPE>>");
    let listen = ["serve", "--listen", "example.com:8080"];
    says(&site.tried(KEY, &listen), "such as 127.0.0.1:8080 or 8080");
    let timeout = ["serve", "--request-timeout", "15"];
    says(&site.tried(KEY, &timeout), "needs a unit: 15s, 15m or 15h");
}

fn a_url_with_a_path(stage: &Stage) {
    let mut list = paceline(stage.site.folder(), KEY);
    let url = format!("{}/dashboard", stage.site.origin());
    let list = list.env("PACELINE_URL", url).args(["destination", "list"]);
    let words = "--url (PACELINE_URL): must have no path, leave out /dashboard";
    says(&said(list), words);
}

fn a_closed_network(stage: &Stage) {
    for place in ["10.1.2.3:9000", "169.254.169.254:80"] {
        let url = format!("http://{place}/");
        let refused = stage
            .site
            .tried(&stage.customer.key, &["destination", "create", &url]);
        says(&refused, "not allowed");
        assert!(!refused.err.contains("PACELINE_ALLOW"), "{refused:?}");
        let (status, problem) =
            stage
                .site
                .answer(KEY, "POST", "/v1/destinations", &json!({"url": url}));
        assert_eq!(status, 422, "{problem}");
        assert!(!problem.to_string().contains("PACELINE_ALLOW"), "{problem}");
    }
    let log = stage.site.wrote("log");
    assert!(log.contains("--allow-networks 10.1.2.3:9000"), "{log}");
}

fn no_key_in_clear(stage: &Stage) {
    let list = |url: &str| {
        let mut list = paceline(stage.site.folder(), KEY);
        said(list.env("PACELINE_URL", url).args(["destination", "list"]))
    };
    says(
        &list("http://192.0.2.1"),
        "the key would go in clear to 192.0.2.1",
    );
    // It answers, and not in TLS.
    let plain = list(&format!("https://127.0.0.1:{}", stage.site.port));
    says(&plain, "speak TLS with");
    assert!(!plain.err.contains("only http://"), "{plain:?}");
}

fn what_is_asked_first(stage: &Stage) {
    let delete = ["destination", "delete", "slow-3"];
    let asks = stage.site.tried(KEY, &delete);
    says(&asks, "--yes: this asks before it begins");
    stage.site.run(KEY, &["destination", "show", "slow-3"]);
    stage
        .site
        .run(KEY, &[delete.as_slice(), &["--yes"]].concat());
    says(
        &stage.site.tried(KEY, &["destination", "show", "slow-3"]),
        "no destination is called slow-3",
    );
}

fn a_wrong_key(stage: &Stage) {
    let refused = stage.site.tried("another", &["destination", "list"]);
    says(
        &refused,
        "set PACELINE_API_KEY to the one it was started with, or to one that",
    );
    says(&refused, "`paceline key create` printed");
}

/// As a tidy-up script does it. Only where there is a file.
fn a_lost_file(stage: &Stage) {
    if !stage.is_sqlite {
        return;
    }
    let site = Site::start(None);
    let folder = fs::canonicalize(site.folder()).unwrap();
    let file = folder.join("paceline.db");
    let made = format!("made a new database at {}", file.display());
    assert!(site.wrote("log").contains(&made), "{}", site.wrote("log"));
    let event = json!({"type": "order.paid", "payload": {}});
    let send = || site.answer(KEY, "POST", "/v1/events", &event).0;
    assert_eq!(send(), 202);
    for suffix in ["", "-wal", "-shm"] {
        fs::remove_file(format!("{}{suffix}", file.display())).unwrap();
    }
    assert_eq!(send(), 503);
    wait_for("not ready", || {
        let ready = crate::ask::send(site.port, ("GET", "/readyz"), &[], "").unwrap();
        (ready.0 == 503).then_some(())
    });
    let log = site.wrote("log");
    assert!(log.contains("was deleted or moved away"), "{log}");
}
