//! Two shards as they are run: two databases, one Redis and one RabbitMQ for both, and a
//! router before them.
//!
//! Needs PACELINE_TEST_DATABASE_URL, PACELINE_TEST_REDIS_URL and PACELINE_TEST_AMQP_URL,
//! as `scripts/test` sets them.

use std::time::Duration;

use adapters::shell::{self, QueueCommand};
use domain::shard::{ShardName, home};
use serde_json::{Value, json};
use server::receiver::{Behaviour, Receiver};
use server::trial::Servers;

use crate::ask::{ask, send};
use crate::process::{Server, free_port, get, paceline, poll};

const KEY: &str = "the key that all shards have";

const LIMIT: u32 = 20;

/// More than the limit lets go at once, in a second and a half.
const EVENTS: u32 = 30;

/// A shard with its database, and a tenant that belongs there.
struct Shard {
    name: ShardName,
    database: String,
    url: String,
    port: u16,
    tenant: String,
    _server: Server,
}

struct Stage {
    shards: Vec<Shard>,
    router: u16,
    servers: Servers,
    /// What the names of keys and queues begin with, for both.
    prefix: String,
    receiver: Receiver,
    _router: Server,
}

impl Shard {
    async fn start(servers: &Servers, prefix: &str, name: &str, tenant: String) -> Self {
        let database = format!("{prefix}_{name}");
        shell::psql(&servers.database, &format!("create database {database}"))
            .await
            .unwrap();
        let mut url = url::Url::parse(&servers.database).unwrap();
        url.set_path(&database);
        let folder = tempfile::tempdir().unwrap();
        let mut migrate = paceline(folder.path());
        migrate.args(["migrate", "--database-url", url.as_str()]);
        assert!(migrate.output().unwrap().status.success());
        let port = free_port();
        let mut serve = paceline(folder.path());
        serve.args(["--log", "error"]).envs([
            ("PACELINE_SHARD_NAME", name),
            ("PACELINE_DATABASE_URL", url.as_str()),
            ("PACELINE_SCHEDULE_URL", &servers.schedule),
            ("PACELINE_SCHEDULE_PREFIX", prefix),
            ("PACELINE_QUEUE_URL", &servers.queue),
            ("PACELINE_QUEUE_NAME", prefix),
            ("PACELINE_QUEUE_TYPE", "classic"),
            ("PACELINE_API_KEY", KEY),
            ("PACELINE_SECRET_KEYS", SECRET_KEY),
        ]);
        Self {
            name: name.parse().unwrap(),
            database,
            url: url.into(),
            port,
            tenant,
            _server: Server::spawn(port, &mut serve),
        }
    }
}

const SECRET_KEY: &str = "test:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

impl Stage {
    async fn set() -> Self {
        let servers = Servers::for_tests().unwrap();
        let prefix = format!("paceline_shards_{}", std::process::id());
        let names: [ShardName; 2] = ["a", "b"].map(|name| name.parse().unwrap());
        let both: Vec<_> = names.iter().collect();
        let mut shards = Vec::new();
        for name in &names {
            let mut called = (0..).map(|number| format!("customer-{number}"));
            let tenant = called
                .find(|called| home(&both, called) == Some(name))
                .unwrap();
            shards.push(Shard::start(&servers, &prefix, name.as_str(), tenant).await);
        }
        let addresses = shards
            .iter()
            .map(|shard| format!("{}=http://127.0.0.1:{}", shard.name, shard.port));
        let (router, folder) = (free_port(), tempfile::tempdir().unwrap());
        let mut command = paceline(folder.path());
        command
            .args([
                "--log",
                "error",
                "router",
                "--listen",
                &format!("127.0.0.1:{router}"),
            ])
            .args(["--shards", &addresses.collect::<Vec<_>>().join(",")])
            .env("PACELINE_API_KEY", KEY);
        let running = Server::of(&mut command);
        poll("the router", || {
            get(router, "/readyz").filter(|answer| answer.contains("\"b\":true"))
        });
        Self {
            shards,
            router,
            servers,
            prefix,
            receiver: Receiver::start(Behaviour::ACCEPT, 10_000).await.unwrap(),
            _router: running,
        }
    }

    /// Status, the shard that answered, and what it said.
    fn ask(
        &self,
        key: &str,
        tenant: Option<&str>,
        (method, path): (&str, &str),
        body: &Value,
    ) -> (u16, String, Value) {
        let key = format!("Bearer {key}");
        let mut headers = vec![
            ("authorization", key.as_str()),
            ("content-type", "application/json"),
        ];
        headers.extend(tenant.map(|tenant| ("paceline-tenant", tenant)));
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let (status, head, text) = send(self.router, (method, path), &headers, &body).unwrap();
        let head = head.to_lowercase();
        let shard = head
            .lines()
            .find_map(|line| line.strip_prefix("paceline-shard: "));
        let json = serde_json::from_str(&text).unwrap_or(Value::Null);
        (status, shard.unwrap_or_default().to_owned(), json)
    }

    /// A tenant with a destination, and events for it.
    fn onboard(&self, key: &str, number: u32, shard: &Shard) {
        let path = format!("/v1/tenants/{}", shard.tenant);
        let (status, on, said) = self.ask(key, None, ("PUT", &path), &json!({"name": "one"}));
        assert_eq!((status, &*on), (201, shard.name.as_str()), "{said}");
        let destination = json!({"url": self.receiver.url(number), "event_types": ["*"],
            "limits": {"per_second": LIMIT}});
        let put = ("PUT", "/v1/destinations/hooks");
        let (status, _, said) = self.ask(key, Some(&shard.tenant), put, &destination);
        assert_eq!(status, 201, "{said}");
        let event = json!({"type": "walk", "payload": 1});
        let batch = json!({"events": vec![event; EVENTS as usize]});
        let (status, _, said) = self.ask(
            key,
            Some(&shard.tenant),
            ("POST", "/v1/events/batch"),
            &batch,
        );
        assert_eq!(status, 202, "{said}");
    }

    fn send_one(&self, key: &str, shard: &Shard) -> (u16, String, Value) {
        let event = json!({"type": "walk", "payload": {"of": shard.tenant}});
        self.ask(key, Some(&shard.tenant), ("POST", "/v1/events"), &event)
    }

    async fn all_arrive(&self, total: u64) {
        let arrived = self.receiver.wait_for(total);
        let in_time = tokio::time::timeout(Duration::from_secs(30), arrived).await;
        assert!(in_time.is_ok(), "{} of {total}", self.receiver.total());
    }

    async fn strike(self) {
        let Self {
            shards,
            servers,
            prefix,
            ..
        } = self;
        for shard in shards {
            let queue = shard.name.of(&prefix);
            let database = shard.database.clone();
            drop(shard);
            for queue in [queue.clone(), format!("{queue}.dead")] {
                let _ = shell::rabbitmq(&servers.queue, &queue, QueueCommand::Delete).await;
            }
            shell::redis_forget(&servers.schedule, &queue)
                .await
                .unwrap();
            let drop = format!("drop database {database} with (force)");
            shell::psql(&servers.database, &drop).await.unwrap();
        }
    }
}

/// The most that came in any time of so many microseconds.
fn most_within(at: &[u64], us: u64) -> usize {
    let within = |from: &u64| {
        at.iter()
            .filter(|one| (*from..from + us).contains(*one))
            .count()
    };
    at.iter().map(within).max().unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_databases_share_a_redis_and_a_rabbitmq_and_are_one_api() {
    let stage = Stage::set().await;
    let [a, b] = &stage.shards[..] else {
        panic!("not two");
    };
    let default = engine::ports::DEFAULT_TENANT;
    let keys = format!("/v1/tenants/{default}/keys");
    let scopes = json!({"scopes": ["platform", "admin"]});
    let (status, _, made) = stage.ask(KEY, None, ("POST", &keys), &scopes);
    assert_eq!(status, 201, "{made}");
    let key = made["key"].as_str().unwrap().to_owned();
    assert!(key.starts_with("pl_a_"));

    for (number, shard) in [(1, a), (2, b)] {
        stage.onboard(&key, number, shard);
    }
    stage.all_arrive(u64::from(2 * EVENTS)).await;
    let arrivals = stage.receiver.record().arrivals;
    for number in [1, 2] {
        let own = arrivals.iter().filter(|one| one.destination == number);
        let at: Vec<_> = own.map(|one| one.at_us).collect();
        assert_eq!(at.len(), EVENTS as usize, "each once");
        // As everywhere beside other work: a receiver that waits for a core sees one that was
        // in time among those of the next second.
        let limit = LIMIT as usize;
        let worst = [most_within(&at, 970_000), most_within(&at, 1_000_000)];
        assert!(worst[0] <= limit && worst[1] <= limit + 1, "{worst:?}");
    }
    // A worker that was given the other's permits would have been refused them.
    for shard in [a, b] {
        let metrics = get(shard.port, "/metrics").unwrap();
        let value = |name: &str| {
            let line = metrics.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap_or_else(|| panic!("{name}")).trim().to_owned()
        };
        assert_eq!(value("paceline_permits_refused_total"), "0");
        // On a busy machine one may have been claimed and not sent, and then once more.
        let starts: u32 = value("paceline_starts_total").parse().unwrap();
        assert!((EVENTS..2 * EVENTS).contains(&starts), "{starts}");
    }

    close(&stage, b).await;
    let gone = poll("told", || {
        let (status, on, said) = stage.send_one(&key, b);
        assert_eq!(stage.send_one(&key, a).0, 202, "of the other shard");
        (status != 202).then_some((status, on, said))
    });
    assert_eq!((gone.0, &*gone.1), (503, "b"), "{}", gone.2);
    let (status, list) = ask((stage.router, &key), "GET", "/v1/tenants", None).unwrap();
    let list: Value = serde_json::from_str(&list).unwrap();
    assert_eq!(status, 503);
    assert_eq!(list["type"], "urn:paceline:problem:shard-away");
    assert!(
        list["detail"].as_str().unwrap().contains("the shard b"),
        "{list}"
    );
    poll("seen", || {
        get(stage.router, "/readyz").filter(|answer| answer.contains("\"b\":false"))
    });

    let open = format!("alter database {} with allow_connections true", b.database);
    shell::psql(&stage.servers.database, &open).await.unwrap();
    poll("back", || (stage.send_one(&key, b).0 == 202).then_some(()));
    let of_b = || {
        let arrivals = stage.receiver.record().arrivals;
        arrivals.iter().filter(|one| one.destination == 2).count()
    };
    poll("delivered", || (of_b() > EVENTS as usize).then_some(()));
    stage.strike().await;
}

/// As if its server was gone.
async fn close(stage: &Stage, shard: &Shard) {
    let database = &shard.database;
    let close = format!("alter database {database} with allow_connections false");
    shell::psql(&stage.servers.database, &close).await.unwrap();
    let end = format!(
        "select pg_terminate_backend(pid) from pg_stat_activity where datname = '{database}'"
    );
    shell::psql(&stage.servers.database, &end).await.unwrap();
    assert!(shell::psql(&shard.url, "select 1").await.is_err());
}
