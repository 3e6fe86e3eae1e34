//! `paceline import svix`, from answers as Svix's API gives them to a real server; and what
//! receivers that knew Svix make of its requests.
//!
//! The answers are not recorded. They are written by hand after the description that Svix
//! publishes (`codegen/lib-openapi.json` of github.com/svix/svix-webhooks, version 1.947.0 of
//! the API), and a test holds each to the fields and types that it states. Ids are shorter
//! than Svix's. What the description has dropped and its server still sends (`rateLimit`,
//! `filterTypes`, `version`) stands beside it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderName, StatusCode, header};
use serde_json::{Value, json};
use server::receiver::{Behaviour, Observed, Receiver};
use standardwebhooks::Webhook;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::described::Described;
use crate::process::{Server, free_port, paceline};

/// By path and query. Only the receivers' URLs are put in.
const ACCOUNT: &str = include_str!("svix/account.json");

/// The fields of its answers, which of them are required, and their types: what is read.
const DESCRIBED: &str = include_str!("svix/described.json");

const GUIDE: &str = include_str!("../../../../docs/from-svix.md");

const TOKEN: &str = "testsk_canary-token.eu";

const ORDERS: &str = "/api/v1/app/app_2shop/endpoint/ep_orders/";
const APPLICATIONS: &str = "/api/v1/app/?limit=250";
const SHOPS: &str = "/api/v1/app/app_2shop/endpoint/?limit=250";
const TYPES: &str = "/api/v1/event-type/?include_archived=true&with_content=true&limit=250";

/// Headers that Svix's receivers look for, as Standard Webhooks calls them.
pub(crate) fn unbranded(headers: &HeaderMap) -> HeaderMap {
    let svix = headers.iter().filter_map(|(name, value)| {
        let rest = name.as_str().strip_prefix("svix-")?;
        let name = HeaderName::try_from(format!("webhook-{rest}")).unwrap();
        Some((name, value.clone()))
    });
    svix.collect()
}

/// What Svix answers.
#[derive(Clone)]
struct Account(Arc<Mutex<Answers>>);

struct Answers {
    by_target: BTreeMap<String, Value>,
    /// Asked for once more before it is answered, and how often that happened.
    too_fast: BTreeMap<String, u32>,
}

impl Account {
    fn new(receiver: &Receiver) -> Self {
        let mut text = ACCOUNT.to_owned();
        for number in 1..=6 {
            let url = format!("https://receiver.example/{number}");
            text = text.replace(&url, &receiver.url(number));
        }
        let too_fast = [(SHOPS.to_owned(), 0), (format!("{ORDERS}headers/"), 0)];
        Self(Arc::new(Mutex::new(Answers {
            by_target: serde_json::from_str(&text).unwrap(),
            too_fast: too_fast.into(),
        })))
    }

    /// Its URL.
    async fn serve(&self) -> String {
        let router = Router::new().fallback(answer).with_state(self.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async { axum::serve(listener, router).await.unwrap() });
        url
    }

    fn set(&self, target: &str, answer: Value) {
        let mut answers = self.0.lock().unwrap();
        answers.by_target.insert(target.to_owned(), answer);
    }

    fn get(&self, target: &str) -> Value {
        self.0.lock().unwrap().by_target[target].clone()
    }
}

async fn answer(State(account): State<Account>, request: Request) -> Response {
    let key = request.headers().get(header::AUTHORIZATION);
    if key.is_none_or(|key| key != format!("Bearer {TOKEN}").as_str()) {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    let target = request.uri().path_and_query().unwrap().as_str();
    let mut answers = account.0.lock().unwrap();
    if let Some(times @ 0) = answers.too_fast.get_mut(target) {
        *times += 1;
        let wait = [(header::RETRY_AFTER, "1")];
        return (StatusCode::TOO_MANY_REQUESTS, wait).into_response();
    }
    match answers.by_target.get(target) {
        Some(found) => axum::Json(found).into_response(),
        None if target.ends_with("/transformation/") => {
            (StatusCode::NOT_FOUND, axum::Json(problem("not_found"))).into_response()
        }
        None => {
            let problem = axum::Json(problem("server_error"));
            (StatusCode::INTERNAL_SERVER_ERROR, problem).into_response()
        }
    }
}

fn problem(code: &str) -> Value {
    json!({"code": code, "detail": "as it is"})
}

/// What Svix calls an answer from there.
fn kind(target: &str) -> &'static str {
    let path = target.split('?').next().unwrap().trim_end_matches('/');
    match path.rsplit('/').next().unwrap() {
        "app" => "ListResponse_ApplicationOut_",
        "endpoint" => "ListResponse_EndpointOut_",
        "event-type" => "ListResponse_EventTypeOut_",
        "headers" => "EndpointHeadersOut",
        "secret" => "EndpointSecretOut",
        "transformation" => "EndpointTransformationOut",
        _ => panic!("{target} is nothing that is read"),
    }
}

#[test]
fn each_answer_has_the_fields_that_svix_describes() {
    let described = Described::by(serde_json::from_str(DESCRIBED).unwrap());
    let account: BTreeMap<String, Value> = serde_json::from_str(ACCOUNT).unwrap();
    let kinds: BTreeSet<_> = account.keys().map(|target| kind(target)).collect();
    assert_eq!(kinds.len(), 6, "{kinds:?}");
    for (target, answer) in &account {
        let problems = described.problems(kind(target), answer);
        assert_eq!(problems, [""; 0], "{target}");
    }
    assert_eq!(
        described.problems("HttpErrorOut", &problem("not_found")),
        [""; 0]
    );
}

/// An account of Svix, a server of ours, and receivers.
struct Scene {
    folder: tempfile::TempDir,
    account: Account,
    svix: String,
    ours: String,
    requests: mpsc::Receiver<(u32, HeaderMap, Vec<u8>)>,
    _receiver: Receiver,
    _server: Server,
}

impl Scene {
    /// With so many management calls a second.
    async fn set(manage_per_second: &str) -> Self {
        let (seen, requests) = mpsc::channel(100);
        let observer = move |request: Observed<'_>| {
            let body = request.body.to_vec();
            seen.try_send((request.destination, request.headers.clone(), body))
                .unwrap();
            None
        };
        let receiver = Receiver::start_observed(Behaviour::ACCEPT, 10, Some(Box::new(observer)));
        let receiver = receiver.await.unwrap();
        let account = Account::new(&receiver);
        let svix = account.serve().await;
        let (folder, port) = (tempfile::tempdir().unwrap(), free_port());
        let settings = [
            ("PACELINE_MANAGE_PER_SECOND", manage_per_second),
            ("PACELINE_SIGNATURE_PREFIX", "svix-"),
        ];
        let server = Server::start_with(folder.path(), port, &settings);
        Self {
            folder,
            account,
            svix,
            ours: format!("http://127.0.0.1:{port}"),
            requests,
            _receiver: receiver,
            _server: server,
        }
    }

    fn paceline(&self, arguments: &[&str]) -> Output {
        let mut command = paceline(self.folder.path());
        command.args(arguments).args(["--url", &self.ours]);
        command.output().unwrap()
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let output = self.paceline(&[arguments, &["--output", "json"]].concat());
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// What it says, in which no secret is.
    fn import(&self, more: &[&str]) -> (Option<i32>, String) {
        let file = self.folder.path().join("token");
        std::fs::write(&file, format!("{TOKEN}\n")).unwrap();
        let file = file.to_str().unwrap();
        let svix = [
            "import",
            "svix",
            "--svix-url",
            &self.svix,
            "--token-file",
            file,
        ];
        let output = self.paceline(&[&svix[..], more].concat());
        let said = String::from_utf8(output.stdout).unwrap();
        let all = format!("{said}{}", String::from_utf8(output.stderr).unwrap());
        for endpoint in ["ep_orders", "ep_off", "ep_eu", "ep_shaped", "ep_all"] {
            assert!(!all.contains(&secret(endpoint)["whsec_".len()..]), "{all}");
        }
        assert!(!all.contains("canary"), "{all}");
        (output.status.code(), said)
    }

    fn report(&self, more: &[&str]) -> Value {
        let (code, said) = self.import(&[more, &["--output", "json"]].concat());
        let report: Value = serde_json::from_str(&said).unwrap();
        let failed = report["failed"].as_array().unwrap();
        assert_eq!(code, Some(i32::from(!failed.is_empty())), "{said}");
        report
    }

    /// As our catalogue has it.
    fn event_type(&self, name: &str) -> Value {
        self.json(&["event-type", "show", name])
    }

    /// Another description, another rate, one enabled, and one that has a secret now.
    fn change_at_svix(&self) {
        let mut shops = self.account.get(SHOPS);
        shops["data"][0]["description"] = "Orders, all".into();
        shops["data"][0]["throttleRate"] = 9.into();
        shops["data"][1]["disabled"] = false.into();
        self.account.set(SHOPS, shops);
        let broken = "/api/v1/app/app_2shop/endpoint/ep_broken/secret/";
        self.account.set(broken, json!({"key": secret("ep_off")}));
        let mut types = self.account.get(TYPES);
        types["data"][0]["description"] = "Paid at last".into();
        self.account.set(TYPES, types);
    }

    fn take_rates_away_at_svix(&self) {
        for target in [APPLICATIONS, SHOPS] {
            let mut page = self.account.get(target);
            for one in page["data"].as_array_mut().unwrap() {
                one["throttleRate"] = Value::Null;
                one["rateLimit"] = Value::Null;
            }
            self.account.set(target, page);
        }
    }

    /// The tenants but for our own, and their destinations, by external ids.
    fn there(&self) -> BTreeMap<String, BTreeMap<String, Value>> {
        let named = |list: &Value| -> Vec<(String, Value)> {
            let named = list
                .as_array()
                .unwrap()
                .iter()
                .filter_map(|one| Some((one["external_id"].as_str()?.to_owned(), one.clone())));
            named.collect()
        };
        let tenants = self.json(&["tenant", "list"]);
        let tenants = named(&tenants["tenants"]).into_iter().map(|(tenant, _)| {
            let list = self.json(&["destination", "list", "--tenant", &tenant]);
            let all = list["destinations"].as_array().unwrap().len();
            let destinations: BTreeMap<_, _> = named(&list["destinations"]).into_iter().collect();
            assert_eq!(
                destinations.len(),
                all,
                "each has an external id of its own"
            );
            (tenant, destinations)
        });
        tenants.collect()
    }
}

/// What that endpoint signs with at Svix.
fn secret(endpoint: &str) -> String {
    let account: BTreeMap<String, Value> = serde_json::from_str(ACCOUNT).unwrap();
    let ends = format!("/{endpoint}/secret/");
    let mut found = account.iter().filter(|(target, _)| target.ends_with(&ends));
    let key = found.next().unwrap().1["key"].as_str().unwrap();
    format!("whsec_{}", key.trim_start_matches("whsec_"))
}

/// What was done, by the id of Svix.
fn done(report: &Value) -> BTreeMap<&str, &str> {
    let written = report["written"].as_array().unwrap().iter();
    written
        .map(|one| {
            (
                one["svix_id"].as_str().unwrap(),
                one["done"].as_str().unwrap(),
            )
        })
        .collect()
}

/// What was not, as `id: what`.
fn left(report: &Value) -> Vec<String> {
    let left = report["not_taken_over"].as_array().unwrap().iter();
    left.map(|one| {
        let text = |field: &str| one[field].as_str().unwrap().to_owned();
        format!("{}: {}", text("svix_id"), text("what"))
    })
    .collect()
}

#[track_caller]
fn is_left(report: &Value, begin: &str) {
    let left = left(report);
    assert!(
        left.iter().any(|one| one.starts_with(begin)),
        "{begin}: {left:#?}"
    );
}

/// What the first run says, or one that writes nothing.
#[track_caller]
fn is_of_a_first_run(report: &Value) {
    let all = done(report);
    let created = [
        "app_2mill",
        "app_2shop",
        "ep_all",
        "ep_eu",
        "ep_off",
        "ep_orders",
        "ep_shaped",
        "order.paid",
        "order.sent",
    ];
    assert_eq!(all.keys().copied().collect::<Vec<_>>(), created, "{report}");
    assert!(all.values().all(|done| *done == "created"), "{report}");
    let failed = report["failed"].as_array().unwrap();
    assert_eq!(failed.len(), 1, "one of them ends nothing: {report}");
    assert_eq!(failed[0]["svix_id"], "ep_broken");
    let error = failed[0]["error"].as_str().unwrap();
    assert!(
        error.contains("500") && error.contains("server_error"),
        "{error}"
    );
    for begin in [
        "order.paid: its schemas of versions 1",
        "app_2shop: its metadata: plan",
        "ep_orders: its header Host: ",
        "ep_orders: its header Authorization: ",
        "ep_eu: its channels eu",
        "ep_shaped: its transformation",
        "ep_all: its uid 0192f3c4-0000-7000-8000-000000000001",
    ] {
        is_left(report, begin);
    }
    assert_eq!(left(report).len(), 7, "{:#?}", left(report));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_account_is_taken_over_once_however_often_it_is_imported() {
    let scene = Scene::set("2").await;
    let wrong = [
        "import",
        "svix",
        "--svix-url",
        &scene.svix,
        "--svix-token",
        "wrong",
    ];
    let wrong = String::from_utf8(scene.paceline(&wrong).stderr).unwrap();
    assert!(
        wrong.contains("Svix refused the token: set SVIX_AUTH_TOKEN"),
        "{wrong}"
    );
    let empty = scene.there();
    assert!(empty.is_empty(), "{empty:?}");
    is_of_a_first_run(&scene.report(&["--dry-run"]));
    assert!(scene.there().is_empty(), "nothing was written");
    let began = Instant::now();
    is_of_a_first_run(&scene.report(&[]));
    // Seven calls for one tenant, the first two of them at once.
    assert!(
        began.elapsed() >= Duration::from_secs(2),
        "it was told to wait"
    );
    let too_fast = scene.account.0.lock().unwrap().too_fast.clone();
    assert!(too_fast.values().all(|times| *times == 1), "{too_fast:?}");

    let there = scene.there();
    let names: Vec<_> = there
        .iter()
        .map(|(one, all)| (one.as_str(), all.len()))
        .collect();
    assert_eq!(names, [("app_2mill", 1), ("shop", 4)]);
    let orders = &there["shop"]["orders"];
    assert_eq!(orders["name"], "Orders");
    assert_eq!(orders["event_types"], json!(["order.paid"]));
    assert_eq!(orders["limits"]["per_second"], 7);
    let all = there["shop"].values();
    let groups: Vec<_> = all.map(|one| &one["limit_group"]).collect();
    assert_eq!(groups, vec!["application"; 4]);
    let group = scene.json(&["limit-group", "show", "application", "--tenant", "shop"]);
    assert_eq!(group["limits"]["per_second"], 50);
    assert_eq!(orders["headers"], json!(["x-env"]));
    assert_eq!(orders["state"], "active");
    for (name, state, types) in [
        ("ep_off", "disabled", "*"),
        ("ep_eu", "disabled", "*"),
        ("ep_shaped", "disabled", "order.sent"),
    ] {
        assert_eq!(there["shop"][name]["state"], state, "{name}");
        assert_eq!(there["shop"][name]["event_types"], json!([types]), "{name}");
    }

    let paid = scene.event_type("order.paid");
    assert_eq!(paid["description"], "An order was paid");
    assert_eq!(paid["schema"]["required"], json!(["order"]));
    assert_eq!(paid["example"], json!({"order": 7, "card": "4711"}));
    assert_eq!(scene.event_type("order.sent")["schema"], json!(null));

    for (id, done) in done(&scene.report(&[])) {
        // Of headers nobody knows whether they are the same.
        let expected = if id == "ep_orders" {
            "updated"
        } else {
            "unchanged"
        };
        assert_eq!(done, expected, "{id}");
    }
    assert_eq!(
        scene.there(),
        there,
        "nothing is there twice, nothing has changed"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_run_brings_up_to_date_and_keeps_what_was_set_here() {
    let scene = Scene::set("100").await;
    scene.report(&[]);
    // Here: what Svix says nothing of, and a header that it does not give.
    let of_shop = |arguments: &[&str]| {
        scene.json(&[&["destination"], arguments, &["--tenant", "shop"]].concat())
    };
    of_shop(&[
        "update",
        "orders",
        "--per-minute",
        "60",
        "--max-in-flight",
        "3",
    ]);
    let headers = [
        "--header",
        "authorization: set here",
        "--header",
        "x-env: b",
    ];
    of_shop(&[&["update", "orders"], &headers[..]].concat());
    of_shop(&["resume", "ep_eu"]);
    scene.json(&["tenant", "create", "another", "--external-id", "another"]);
    scene.change_at_svix();
    let hide = ["event-type", "update", "order.paid", "--redact", "/card"];
    scene.json(&[&hide[..], &["--archived"]].concat());
    let before = scene.there();
    let (code, said) = scene.import(&["--dry-run"]);
    assert_eq!(code, Some(0), "{said}");
    for line in [
        "would be created",
        "would be updated",
        "(nothing was written)",
    ] {
        assert!(said.contains(line), "{said}");
    }
    assert_eq!(scene.there(), before);

    let report = scene.report(&[]);
    let done = done(&report);
    assert_eq!(
        (done["ep_orders"], done["ep_broken"]),
        ("updated", "created")
    );
    assert_eq!((done["ep_eu"], done["ep_off"]), ("unchanged", "unchanged"));
    is_left(
        &report,
        "ep_orders: its headers stay as they are here, for they have authorization",
    );
    is_left(&report, "ep_off: that it is enabled: it is disabled here");
    is_left(&report, "order.paid: that it is not archived");
    let paid = scene.event_type("order.paid");
    assert_eq!(paid["description"], "Paid at last");
    assert_eq!(
        (&paid["redact"], &paid["archived"]),
        (&json!(["/card"]), &true.into())
    );
    let after = scene.there();
    assert_eq!(after.len(), 3);
    let orders = &after["shop"]["orders"];
    assert_eq!(orders["name"], "Orders, all");
    let limits = &orders["limits"];
    assert_eq!(
        (&limits["per_second"], &limits["per_minute"]),
        (&9.into(), &60.into())
    );
    assert_eq!(orders["max_in_flight"], 3);
    assert_eq!(orders["headers"], json!(["authorization", "x-env"]));
    assert_eq!(after["shop"]["ep_eu"]["state"], "active", "somebody looked");
    assert_eq!(after["shop"]["ep_broken"]["state"], "active");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rate_that_is_taken_away_stays_and_is_told_of() {
    let scene = Scene::set("100").await;
    scene.report(&[]);
    scene.take_rates_away_at_svix();
    let report = scene.report(&[]);
    is_left(
        &report,
        "ep_orders: that it has no rate limit: 7/s, which is set here, stays",
    );
    let stays = "ep_off: that its application has no rate limit: it stays in the limit group";
    is_left(&report, stays);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_that_knew_svix_verifies_by_the_secret_that_it_has() {
    let mut scene = Scene::set("100").await;
    scene.report(&[]);
    for (tenant, number, endpoint) in [("shop", 1, "ep_orders"), ("app_2mill", 6, "ep_all")] {
        let payload = format!("{{ \"of\" : \"{tenant}\" }}");
        let send = [
            "event",
            "send",
            &payload,
            "--type",
            "order.paid",
            "--tenant",
            tenant,
        ];
        scene.json(&send);
        let (to, headers, body) = scene.requests.recv().await.unwrap();
        assert_eq!((to, body), (number, payload.clone().into_bytes()));
        let begins = |prefix: &str| {
            let names = headers
                .keys()
                .filter(|name| name.as_str().starts_with(prefix));
            names.count()
        };
        assert_eq!((begins("svix-"), begins("webhook-")), (3, 0), "{headers:?}");
        let headers = unbranded(&headers);
        let verified = |secret: &str| {
            let verifier = Webhook::new(secret).unwrap();
            verifier.verify(payload.as_bytes(), &headers).is_ok()
        };
        assert!(verified(&secret(endpoint)), "{endpoint}");
        assert!(!verified(&secret("ep_eu")), "{endpoint}");
    }
}

/// Its own commands, by a shell, with a key of the scopes that it names and no other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_guide_works_as_it_is_written() {
    let scene = Scene::set("100").await;
    let folder = scene.folder.path();
    std::fs::write(folder.join("svix.token"), TOKEN).unwrap();
    let broken = "/api/v1/app/app_2shop/endpoint/ep_broken/secret/";
    scene.account.set(broken, json!({"key": secret("ep_off")}));
    let program = Path::new(env!("CARGO_BIN_EXE_paceline")).parent().unwrap();
    let mut key = String::new();
    let mut done = Vec::new();
    for line in GUIDE.lines().map(str::trim) {
        let words: Vec<&str> = line.split(' ').collect();
        if words[0] != "paceline" || ["serve", "listen"].contains(&words[1]) {
            continue;
        }
        let line = line
            .replace("https://hooks.example.com", &scene.ours)
            .replace("customer-42", "shop");
        let mut shell = Command::new("/bin/sh");
        shell.current_dir(folder).env_clear().args(["-c", &line]);
        shell
            .env("PATH", program)
            .env("XDG_CONFIG_HOME", folder)
            .env("PACELINE_SVIX_URL", &scene.svix);
        if words[1] == "key" {
            shell.env("PACELINE_URL", &scene.ours);
        }
        let mut shell = shell
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // For `login`; the others read nothing.
        let _ = shell.stdin.take().unwrap().write_all(key.as_bytes());
        let output = shell.wait_with_output().unwrap();
        assert!(output.status.success(), "{line}: {output:?}");
        if words[1] == "key" {
            let said = String::from_utf8(output.stdout).unwrap();
            let found = said.split_whitespace().find(|word| word.starts_with("pl_"));
            found.unwrap().clone_into(&mut key);
        }
        done.push(words[1]);
    }
    let expected = [
        "key",
        "login",
        "import",
        "import",
        "destination",
        "destination",
        "destination",
    ];
    assert_eq!(done, expected);
    let shop = &scene.there()["shop"];
    assert_eq!(shop.len(), 5);
    assert_eq!(shop["orders"]["headers"], json!(["authorization", "x-env"]));
}

#[test]
fn without_a_token_or_where_none_is_sent_it_is_refused_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, TOKEN).unwrap();
    let refused = |arguments: &[&str], code: i32, says: &str| {
        let mut command = paceline(folder.path());
        command.args([
            "import",
            "svix",
            "--url",
            "http://127.0.0.1:1",
            "--api-key",
            "k",
        ]);
        let output = command.args(arguments).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(said.contains(says) && !said.contains("canary"), "{said}");
    };
    let nowhere = Path::new("nowhere");
    refused(&[], 2, "--token-file: no token: name a file");
    refused(&["--token-file", nowhere.to_str().unwrap()], 2, "no token");
    let with = ["--token-file", file.to_str().unwrap()];
    let clear = [&with[..], &["--svix-url", "http://svix.example"]].concat();
    refused(
        &clear,
        2,
        "--svix-url (PACELINE_SVIX_URL): the key would go in clear",
    );
    let path = [&with[..], &["--svix-url", "https://svix.example/api/v1"]].concat();
    refused(&path, 2, "leave out /api/v1");
    let nobody = [&with[..], &["--svix-url", "http://127.0.0.1:1"]].concat();
    refused(&nobody, 1, "cannot reach Svix at http://127.0.0.1:1");
}
