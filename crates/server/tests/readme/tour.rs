//! Takes the README's tour as it is written, up to the distributed part. Only
//! the ports are others, and what is a program of the system's is done here:
//! `curl`, `jq` and `sqlite3`. The programs in Python run. How long all of it takes, but for
//! the build, is printed and not judged: `cargo test -p server --test readme tour --
//! --nocapture` shows it.

use std::collections::BTreeMap;

use serde_json::Value;
use tokio::time::Instant;

use crate::book::{README, blocks, commands, words};
use crate::customer::Customer;
use crate::stage::Stage;

struct Tour {
    stage: Stage,
    /// The secret that was shown last, which stands in the text as `whsec_…`.
    secret: String,
    /// The link that was made, and who opened it.
    link: String,
    customer: Option<Customer>,
    /// What was done, and how often.
    done: BTreeMap<String, u32>,
    /// Ids of events that were accepted, and what the receiver made of each.
    events: Vec<(String, String)>,
    /// What `sqlite3` ran, and `psql` should.
    sql: Vec<String>,
}

impl Tour {
    fn take(&mut self, command: &str) {
        let stage = &mut self.stage;
        let command = command
            .replace("127.0.0.1:8080", &stage.api)
            .replace("127.0.0.1:9000", &stage.receiver);
        let first = command.split(' ').next().unwrap();
        if let Some((name, rest)) = command.split_once("=$(") {
            let name = name.trim_start_matches("export ");
            let value = self.substituted(rest.strip_suffix(')').unwrap());
            self.stage.variables.insert(name.to_owned(), value);
            return;
        }
        // The build is the one that the test has.
        if first == "cargo" {
            return self.note(first);
        }
        if first == "psql" {
            let named = ("PACELINE_DATABASE_URL".to_owned(), "postgres://".to_owned());
            self.stage.variables.extend([named]);
        }
        let words = words(&command, &self.stage.variables);
        match first {
            "paceline" => drop(self.paceline(&words[1..])),
            "curl" => drop(self.curl(&words[1..])),
            "python3" => self.python(&words[1..]),
            "sqlite3" => {
                let (sql, file) = (&words[words.len() - 1], &words[words.len() - 2]);
                let file = self.stage.folder.path().join(file);
                assert!(file.exists(), "{file:?}");
                adapters::shell::sqlite3(&file, sql).unwrap();
                self.sql.push(sql.clone());
                self.note(first);
            }
            "psql" => {
                assert_eq!(words.last(), self.sql.last(), "the same on both");
                self.note(first);
            }
            _ => panic!("the tour has a command that the test does not know: {command}"),
        }
    }

    /// `$(…)`: a file's text, or a field of an answer.
    fn substituted(&mut self, command: &str) -> String {
        if let Some(file) = command.strip_prefix("cat ") {
            let text = std::fs::read_to_string(self.stage.folder.path().join(file));
            return text.unwrap().trim().to_owned();
        }
        let (asking, field) = command.split_once(" | jq -r .").unwrap();
        let words = words(asking, &self.stage.variables);
        let answer = match words[0].as_str() {
            "curl" => self.curl(&words[1..]),
            "paceline" => serde_json::from_str(&self.paceline(&words[1..])).unwrap(),
            other => panic!("{other} has no answer"),
        };
        answer[field].as_str().unwrap().to_owned()
    }

    /// What it says.
    fn paceline(&mut self, arguments: &[String]) -> String {
        if arguments[0] == "serve" {
            self.stage.serve(arguments);
            self.note("serve");
            return String::new();
        }
        let output = self.stage.run(arguments);
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(!said.trim().is_empty(), "{arguments:?} says nothing");
        match [arguments[0].as_str(), arguments[1].as_str()] {
            ["event", "send"] => self.accepted(),
            ["link", "create"] => said.trim().clone_into(&mut self.link),
            ["destination", "secret"] => {
                let mut words = said.split_whitespace();
                let secret = words.find(|word| word.starts_with("whsec_"));
                secret.unwrap().clone_into(&mut self.secret);
            }
            _ => {}
        }
        let nouns = ["destination", "event", "link", "tenant"];
        let named = if nouns.contains(&arguments[0].as_str()) {
            2
        } else {
            1
        };
        self.note(&arguments[..named].join(" "));
        said
    }

    fn curl(&mut self, arguments: &[String]) -> Value {
        let answer = self.stage.curl(arguments);
        if answer.get("destinations").is_some() && answer.get("attempts").is_none() {
            self.accepted();
            let (event, _) = self.events.last().unwrap();
            assert_eq!(answer["id"].as_str(), Some(event.as_str()));
        }
        self.note("curl");
        answer
    }

    /// An accepted event arrives; `$EVENT` is the last one.
    fn accepted(&mut self) {
        let (event, made_of_it) = self.stage.arrival(&self.stage.receiver);
        self.events.push((event.clone(), made_of_it));
        self.stage.variables.insert("EVENT".to_owned(), event);
    }

    fn python(&mut self, arguments: &[String]) {
        self.note(&format!("python3 {}", arguments[0]));
        let all: Vec<_> = arguments.iter().map(String::as_str).collect();
        match all[..] {
            ["examples/saas/onboard.py", _] => self.onboards(arguments),
            ["examples/receiver.py", "whsec_…"] => {
                let (at, secret) = (self.stage.receiver.clone(), self.secret.clone());
                self.listens(&at, secret);
            }
            ["examples/receiver.py", "whsec_…", "9001"] => self.mends_his_endpoint(),
            _ => panic!("python3 {all:?} is not understood"),
        }
    }

    /// The receiver, where the text has a port that may be taken.
    fn listens(&mut self, at: &str, secret: String) {
        let (_, port) = at.split_once(':').unwrap();
        let arguments = ["examples/receiver.py".to_owned(), secret, port.to_owned()];
        self.stage.receive(at, &arguments);
    }

    /// It prints what the README says.
    fn onboards(&self, arguments: &[String]) {
        let said = self.stage.program(arguments);
        let shown = blocks(README, "text");
        let shown = shown.iter().find(|text| text.starts_with("onboarded"));
        let shown = shown.unwrap().replace("127.0.0.1:8080", &self.stage.api);
        assert_eq!(said.lines().count(), shown.lines().count(), "{said}");
        for (line, shown) in said.lines().zip(shown.lines()) {
            match shown.strip_suffix('…') {
                Some(begins) => assert!(line.starts_with(begins), "{said}"),
                None => assert_eq!(line, shown),
            }
        }
    }

    /// What the README says of it, up to what was missed.
    fn mends_his_endpoint(&mut self) {
        let event = self.stage.variables["EVENT"].clone();
        let customer = Customer::open(self.stage.port(), &self.link);
        customer.sees_why(&event);
        let at = self.stage.second.clone();
        self.listens(&at, customer.rotates());
        let [was, now] = [&self.stage.receiver, &at].map(|at| format!("http://{at}/"));
        customer.mends(&now);
        customer.sees_where_it_went(&event, (&was, &now));
        let (tried, made_of_it) = self.stage.arrival(&at);
        assert_eq!(made_of_it, "verified");
        assert_ne!(tried, event);
        customer.has_it_sent_again();
        assert_eq!(self.stage.arrival(&at), (event, "verified".to_owned()));
        self.customer = Some(customer);
    }

    fn note(&mut self, what: &str) {
        *self.done.entry(what.to_owned()).or_default() += 1;
    }
}

#[test]
fn the_tour_works_as_it_is_written() {
    let (_, tour) = README.split_once("\n## A tour\n").unwrap();
    let (tour, _) = tour.split_once("\n### Run it distributed\n").unwrap();
    let mut guide = Tour {
        stage: Stage::new(),
        secret: String::new(),
        link: String::new(),
        customer: None,
        done: BTreeMap::new(),
        events: Vec::new(),
        sql: Vec::new(),
    };
    let began = Instant::now();
    for block in blocks(tour, "sh") {
        for command in commands(&block) {
            guide.take(&command);
        }
    }
    let took = began.elapsed().as_secs_f64();
    let done = guide
        .done
        .iter()
        .map(|(what, times)| (what.as_str(), *times));
    let expected = [
        ("audit", 2),
        ("cargo", 1),
        ("curl", 4),
        ("destination create", 2),
        ("destination explain", 2),
        ("destination retries", 1),
        ("destination secret", 1),
        ("event send", 2),
        ("event show", 2),
        ("link create", 1),
        ("plan", 1),
        ("psql", 1),
        ("python3 examples/receiver.py", 2),
        ("python3 examples/saas/onboard.py", 1),
        ("serve", 1),
        ("sqlite3", 1),
        ("tenant create", 1),
        ("top", 1),
    ];
    assert_eq!(done.collect::<Vec<_>>(), expected);
    let commands: u32 = expected.iter().map(|(_, times)| times).sum();
    eprintln!("the tour: {commands} commands in {took:.1} s, without the build");

    let destination = &guide.stage.variables["ID"];
    let path = format!("/v1/destinations/{destination}");
    guide
        .stage
        .wait_for(&path, |found| found["limits"]["per_second"] == 50);
    // The last is a customer's, whom this key does not see without his name.
    let [first, second, (missed, third)] = &guide.events[..] else {
        panic!("three events: {:?}", guide.events);
    };
    for (event, made_of_it) in [first, second] {
        assert_eq!(made_of_it, "verified");
        let path = format!("/v1/events/{event}");
        guide
            .stage
            .wait_for(&path, |found| found["attempts"][0]["state"] == "succeeded");
    }
    assert_eq!(third, "FORGED");
    guide.customer.unwrap().is_content(missed);
}
