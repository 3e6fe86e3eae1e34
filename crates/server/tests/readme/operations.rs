//! What an operator does is taken as the pages show it, step by step: roles, backups,
//! other keys, an upgrade and the end, over servers and over a file. After a restore
//! nothing is missing, and what was owed is delivered.

use adapters::shell::{self, QueueCommand};
use server::receiver::Behaviour;
use server::trial::Servers;
use tokio::runtime::Runtime;
use url::Url;

use crate::ask::send;
use crate::book::{blocks, commands, document, fenced, inline};
use crate::installation::Installation;
use crate::private::PrivateServers;
use crate::stage::{poll, port};

const PAGE: &str = "operations.md";
const SIGNATURES: &str = "signatures.md";

/// How many steps stand beneath each heading; a test below takes them all.
const STEPS: [(&str, &str, usize); 10] = [
    (PAGE, "## Several shards", 3),
    (PAGE, "## Postgres", 1),
    (PAGE, "## Backups", 2),
    (PAGE, "### Restoring", 5),
    (PAGE, "## Changing keys and passwords", 2),
    (PAGE, "## Upgrading", 2),
    (PAGE, "## Uninstalling", 2),
    (PAGE, "## Completions and man pages", 1),
    (SIGNATURES, "## Secrets", 1),
    (SIGNATURES, "## Secrets at rest", 4),
];

/// What a shell or a database is to run.
fn taken(text: &str) -> Vec<String> {
    let is_step = |language: &str| language == "sh" || language == "sql";
    let steps = fenced(text).into_iter().filter(|(of, _)| is_step(of));
    steps.map(|(_, step)| step).collect()
}

fn beneath(page: &str, heading: &str) -> Vec<String> {
    let begins = format!("\n{heading}\n");
    let (_, rest) = document(page).split_once(&begins).unwrap();
    taken(rest.split("\n#").next().unwrap())
}

/// The steps beneath a heading, all of them.
fn steps<const N: usize>(page: &str, heading: &str) -> [String; N] {
    assert!(STEPS.contains(&(page, heading, N)), "{page}: {heading}");
    let found: Result<[String; N], Vec<String>> = beneath(page, heading).try_into();
    found.unwrap_or_else(|found: Vec<String>| panic!("not {N}: {found:#?}"))
}

#[test]
fn no_step_is_left_out() {
    for page in [PAGE, SIGNATURES] {
        let listed = STEPS.iter().filter(|(of, ..)| *of == page);
        let found: Vec<String> = listed
            .flat_map(|(_, heading, _)| beneath(page, heading))
            .collect();
        let all = taken(document(page));
        let untaken: Vec<&String> = all.iter().filter(|step| !found.contains(step)).collect();
        assert!(untaken.is_empty(), "{page}: no test takes {untaken:#?}");
    }
}

/// What a backup has, row by row, apart from what goes on changing.
const KEPT: [&str; 5] = [
    "select id, name, url, state from destinations order by id",
    "select id, destination_id, kind from destination_secrets order by id",
    "select id, tenant_id, payload from events order by id",
    "select id, event_id, destination_id, try_number from deliveries order by id",
    "select id, event_id, destination_id, state, started_at from ledger order by id",
];

fn kept(site: &Installation) -> [String; 5] {
    KEPT.map(|rows| site.sql(rows))
}

fn owed(site: &Installation) -> String {
    let number = site.sql("select count(*) from deliveries");
    number.trim().to_owned()
}

/// The destination whose receiver does not answer, until it does; and its place there.
const SILENT: (&str, u32) = ("silent", 1);

/// Makes a backup while one event is delivered, one is under way and one is held, delivers
/// another, and loses all that there is. The event that was under way is back, and owed.
fn comes_back(site: &mut Installation, backup: &str, restore: &str) -> String {
    let delivered = site.event_for("shop");
    site.await_delivery(&delivered);
    let (silent, place) = SILENT;
    site.receiver.set_behaviour(place, Behaviour::NeverAnswer);
    site.destination(silent, place);
    let under_way = site.event_for(silent);
    poll("it is under way", || {
        (site.arrivals(&under_way) > 0).then_some(())
    });
    site.destination("held", 2);
    site.run("paceline destination pause held");
    let held = site.event_for("held");
    poll("all others are over", || (owed(site) == "2").then_some(()));
    let before = kept(site);
    site.run(backup);
    let later = site.event_for("shop");
    site.await_delivery(&later);

    site.stop();
    site.run(restore);
    assert_eq!(kept(site), before);
    let [_, _, pause, go_on, _] = steps(PAGE, "### Restoring");
    site.sql(&pause);
    site.start();
    let (status, _) = site.answer(&site.key(), &format!("/v1/events/{later}"));
    assert_eq!(status, 404, "it was accepted after the backup");
    let paused = "select name from destinations where state = 'paused' order by name";
    assert_eq!(site.sql(paused), "held\nshop\nsilent\n");
    let accepted = site.event_for("shop");
    site.receiver.set_behaviour(place, Behaviour::ACCEPT);
    site.sql(&go_on);
    // What an operator had paused stays so.
    assert_eq!(site.sql(paused), "held\n");
    site.await_delivery(&accepted);
    assert_eq!(site.arrivals(&held), 0);
    site.run("paceline destination resume held");
    site.await_delivery(&held);
    assert_eq!(site.arrivals(&delivered), 1, "not sent again");
    under_way
}

/// The ids of the keys in a file, in its order.
fn ring(site: &Installation, file: &str) -> Vec<String> {
    let text = std::fs::read_to_string(site.path().join(file)).unwrap();
    let keys = text.lines().filter(|line| !line.starts_with('#'));
    keys.map(|line| line.split(':').next().unwrap().to_owned())
        .collect()
}

/// Brings all secrets under another key, in a file of this name.
fn seals_anew(site: &mut Installation, file: &str) {
    let is_one_process = file != "secret-keys";
    let four = steps::<4>(SIGNATURES, "## Secrets at rest");
    let [add, to_the_front, seal, take_away] = four.map(|step| step.replace("secret-keys", file));
    let old = ring(site, file);
    site.run(&add);
    let both = ring(site, file);
    let [.., new] = &both[..] else {
        panic!("a key was added: {both:?}")
    };
    assert_eq!(both[..both.len() - 1], old);
    site.start_with_other_keys();
    site.run(&to_the_front);
    assert_eq!(ring(site, file), [&[new.clone()][..], &old].concat());
    site.start_with_other_keys();
    if is_one_process {
        site.stop();
    }
    let said = site.run(&seal);
    assert!(said.contains(&format!("anew under {new}")), "{said}");
    site.run(&take_away);
    assert_eq!(ring(site, file), std::slice::from_ref(new));
    // It does not start where a secret is left under another key.
    site.start_with_other_keys();
    let signed = site.event_for("shop");
    site.await_delivery(&signed);
}

/// The API's key was this one, and is another.
fn is_let_in_no_more(site: &Installation, old: &str) {
    let path = "/v1/destinations";
    assert_eq!(site.answer(old, path).0, 401);
    assert_eq!(site.answer(&site.key(), path).0, 200);
}

/// An installation over servers that has yet to be made, and its Postgres.
fn over_servers() -> (PrivateServers, Installation) {
    let private = PrivateServers::start(&["postgres"]);
    let own = |variable| private.value("postgres", variable);
    let owner = own("DATABASE_URL");
    let worker = owner.replacen("//paceline@", "//paceline_worker@", 1);
    let roles = vec![
        ("api", vec![]),
        ("scheduler", vec![]),
        ("worker", vec![("PACELINE_DATABASE_URL", worker)]),
    ];
    let mut site = Installation::new(roles, &[own("POSTGRES_BIN").into()]);
    let shared = Servers::for_tests().unwrap();
    let name = format!("paceline_operated_{}", std::process::id());
    site.settings.extend([
        ("ADMIN_URL", own("POSTGRES_SUPERUSER_URL")),
        ("PACELINE_API_KEY", "the-key-of-whoever-operates".to_owned()),
        ("PACELINE_DATABASE_URL", owner),
        ("PACELINE_QUEUE_NAME", name.clone()),
        ("PACELINE_QUEUE_TYPE", "classic".to_owned()),
        ("PACELINE_QUEUE_URL", shared.queue),
        ("PACELINE_SCHEDULE_PREFIX", name),
        ("PACELINE_SCHEDULE_URL", shared.schedule),
        ("PACELINE_SECRET_KEYS_FILE", "secret-keys".to_owned()),
    ]);
    site.run("paceline secret-key generate > secret-keys");
    // Its script has made a role of this name, which may do more than the page's.
    site.run("psql -q \"$ADMIN_URL\" -c 'drop database paceline'");
    site.run("psql -q \"$ADMIN_URL\" -c 'drop owned by paceline' -c 'drop role paceline'");
    (private, site)
}

/// What k8s/README.md runs in pods, run here.
fn runs_in_pods(site: &Installation) {
    let shown = blocks(document("k8s/README.md"), "sh").concat();
    let shown = commands(&shown);
    let in_pods: Vec<&str> = (shown.iter())
        .filter(|line| line.contains(" exec deploy/"))
        .filter_map(|line| Some(line.split_once(" -- ")?.1))
        .collect();
    let [send, change] = in_pods[..] else {
        panic!("no more than these: {in_pods:#?}")
    };
    // As the page's destination does.
    site.run("paceline destination update shop --type order.created");
    let said = site.run(send);
    assert!(said.contains("accepted for 1 destination"), "{said}");
    let database = Url::parse(&site.settings["PACELINE_DATABASE_URL"]).unwrap();
    let at = format!("PGHOST=127.0.0.1 PGPORT={}", database.port().unwrap());
    let said = site.run(&format!("{at} {change}"));
    assert!(said.contains("UPDATE 1"), "{said}");
}

/// SQL in the prose of these pages is what the schema knows.
fn statements_are_understood(site: &Installation) {
    let verbs = ["analyze ", "delete ", "insert ", "select ", "update "];
    let pages = [
        "limits.md",
        PAGE,
        "retention.md",
        "runbook.md",
        "k8s/README.md",
    ];
    let shown = pages.into_iter().flat_map(|page| inline(document(page)));
    let whole = |code: &String| !code.contains('…') && verbs.iter().any(|v| code.starts_with(v));
    let shown: Vec<String> = shown.filter(whole).collect();
    assert!(shown.len() >= 8, "{shown:#?}");
    for statement in &shown {
        site.sql(&format!("begin; {statement}; rollback"));
    }
}

/// What a user of the outbox is given (docs/outbox.md).
const OF_THE_OUTBOX: &str = include_str!("../../../../examples/outbox_grants.sql");

fn may_hand_in(site: &Installation) -> bool {
    site.sql("select has_table_privilege('shop', 'paceline.outbox', 'insert')") == "t\n"
}

/// The steps with a destination's signing secrets.
fn rotates(site: &mut Installation) {
    let [rotate] = steps(SIGNATURES, "## Secrets");
    let of_shop = "select id from destinations where name = 'shop'";
    let id = site.sql(of_shop).trim().to_owned();
    let first = format!("select id from destination_secrets where destination_id = '{id}'");
    let first = site.sql(&first).trim().to_owned();
    site.settings.extend([("ID", id), ("SECRET_ID", first)]);
    // Nobody is there to be asked.
    let said = site.run(&rotate.replace("secret delete", "secret delete --yes"));
    assert!(said.contains("whsec_") && said.contains("whpk_"), "{said}");
}

/// With the processes of the version before, which go on, and are replaced one by one.
fn upgrades(site: &mut Installation) {
    let [migrate, wait] = steps(PAGE, "## Upgrading");
    // A right that a version before did not give.
    site.sql("revoke usage on sequence attempts_id_seq from paceline_worker");
    site.run(&migrate);
    let has = "has_sequence_privilege('paceline_worker', 'attempts_id_seq', 'usage')";
    assert_eq!(site.sql(&format!("select {has}")), "t\n");
    site.run(&wait);
    let before = site.event_for("shop");
    site.start();
    let after = site.event_for("shop");
    for event in [before, after] {
        site.await_delivery(&event);
    }
}

/// A second database, with tenants of its own behind one address.
fn gets_a_shard(site: &mut Installation) {
    let [database, tier, router] = steps(PAGE, "## Several shards");
    let url = format!("{}_b", site.settings["PACELINE_DATABASE_URL"]);
    site.settings.insert("SHARD_URL", url.clone());
    site.run(&database);
    let own = [
        ("PACELINE_DATABASE_URL", url),
        ("PACELINE_SHARD_NAME", "b".to_owned()),
        // So it leaves nothing there.
        ("PACELINE_QUEUE_URL", "in-process".to_owned()),
        ("PACELINE_SCHEDULE_URL", "in-process".to_owned()),
    ];
    let second = format!("http://{}", site.leave("paceline serve", &own));
    let first = site.settings["PACELINE_URL"].clone();
    let [tier, router] = [tier, router].map(|line| {
        let line = line.replace("https://api-a.internal", &first);
        line.replace("https://api-b.internal", &second)
    });
    site.run(&tier);
    let at = site.leave(&router, &[]);
    poll("it has found both", || {
        let (_, _, said) = send(port(&at), ("GET", "/readyz"), &[], "").ok()?;
        let both = said.contains("\"a\":true") && said.contains("\"b\":true");
        both.then_some(())
    });
    let create = "paceline tenant create Acme --tier startup";
    site.run(&format!("{create} --url http://{at}"));
    let tenant = "select tier from tenants where name = 'Acme'";
    let found = site.run(&format!("psql -qAt \"$SHARD_URL\" -c \"{tenant}\""));
    assert_eq!(found, "startup\n");
    site.stop();
    site.run("psql -q \"$ADMIN_URL\" -c 'drop database paceline_b'");
}

/// Nothing of it is left on the servers, now that nothing runs.
fn ends_over_servers(site: &Installation) {
    // Those of a broker run on its machine and with its cookie: what it is told is done
    // over its own protocol.
    site.stand_in("rabbitmqctl", "echo \"$@\" >>asked");
    let at = "redis-cli -u \"$PACELINE_SCHEDULE_URL\"";
    let jobs = format!("{at} --scan --pattern \"$PACELINE_SCHEDULE_PREFIX*\"");
    assert_ne!(site.run(&jobs), "");
    let [end, _] = steps(PAGE, "## Uninstalling");
    site.run(&end);
    assert_eq!(site.run(&jobs), "");
    for names in ["datname from pg_database", "rolname from pg_roles"] {
        let found = format!("psql -qAt \"$ADMIN_URL\" -c 'select {names}'");
        let left = site.run(&found);
        assert!(!left.contains("paceline"), "{left}");
    }
    let asked = std::fs::read_to_string(site.path().join("asked")).unwrap();
    let runtime = Runtime::new().unwrap();
    let url = &site.settings["PACELINE_QUEUE_URL"];
    let told = |name: &str, command| runtime.block_on(shell::rabbitmq(url, name, command));
    assert_eq!(asked.lines().count(), 2, "{asked}");
    for line in asked.lines() {
        let queue = line.strip_prefix("delete_queue ").unwrap();
        told(queue, QueueCommand::Purge).expect("the queue is there");
        told(queue, QueueCommand::Delete).unwrap();
    }
}

#[test]
fn an_installation_over_servers_is_kept_as_the_pages_say() {
    let (_postgres, mut site) = over_servers();
    let [roles] = steps(PAGE, "## Postgres");
    site.run(&roles);
    site.start();
    site.destination("shop", 0);
    runs_in_pods(&site);
    statements_are_understood(&site);
    rotates(&mut site);

    site.run("psql -q \"$ADMIN_URL\" -c 'create role shop login'");
    site.sql(OF_THE_OUTBOX);
    assert!(may_hand_in(&site));
    let [backup, _] = steps(PAGE, "## Backups");
    let [restore, _, _, _, forget] = steps(PAGE, "### Restoring");
    let under_way = comes_back(&mut site, &backup, &restore);
    assert!(may_hand_in(&site), "its rights are in the backup");
    site.run(&forget);

    let [_, password] = steps(PAGE, "## Changing keys and passwords");
    site.run(&password);
    let another = "another-key-of-whoever-operates".to_owned();
    let old = site.settings.insert("PACELINE_API_KEY", another);
    seals_anew(&mut site, "secret-keys");
    is_let_in_no_more(&site, &old.unwrap());
    site.await_delivery(&under_way);
    upgrades(&mut site);
    gets_a_shard(&mut site);
    ends_over_servers(&site);
}

#[test]
fn an_installation_over_a_file_is_kept_as_the_pages_say() {
    let mut site = Installation::new(vec![("serve", vec![])], &[]);
    site.start();
    site.destination("shop", 0);

    let [_, backup] = steps(PAGE, "## Backups");
    let [_, restore, _, _, _] = steps(PAGE, "### Restoring");
    let under_way = comes_back(&mut site, &backup, &restore);

    let [forget, _] = steps(PAGE, "## Changing keys and passwords");
    let old = site.key();
    site.stop();
    site.run(&forget);
    shrinks(&site);
    site.start();
    is_let_in_no_more(&site, &old);
    seals_anew(&mut site, "paceline.db.secret-keys");
    site.await_delivery(&under_way);

    let [_, end] = steps(PAGE, "## Uninstalling");
    site.stop();
    site.run(&end);
    let left = std::fs::read_dir(site.path()).unwrap();
    let left = left.map(|entry| entry.unwrap().file_name());
    let left: Vec<_> = left
        .filter(|name| name.to_string_lossy().starts_with("paceline"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

/// What docs/retention.md has for a file that is too large.
fn shrinks(site: &Installation) {
    let shown = inline(document("retention.md"));
    let shown: Vec<&String> = shown.iter().filter(|c| c.starts_with("sqlite3 ")).collect();
    let [vacuum] = shown[..] else {
        panic!("one of them: {shown:#?}")
    };
    site.run(vacuum);
}

#[test]
fn completions_and_man_pages_are_written() {
    let site = Installation::new(Vec::new(), &[]);
    let [both] = steps(PAGE, "## Completions and man pages");
    let script = site.run(&both);
    assert!(script.contains("paceline"), "{script}");
    assert!(site.path().join("man1/paceline.1").exists());
}
