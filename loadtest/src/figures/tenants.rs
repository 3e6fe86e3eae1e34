//! A greedy tenant beside a small one, on a worker whose places are short: the
//! small one's share of the starts, and how long its events wait.

use std::time::Duration;

use bytes::Bytes;
use domain::event::{Audience, NewEvent, Timing};
use domain::ids::{DestinationId, EventId, TenantId};
use http::StatusCode;
use serde_json::{Value, json};
use server::edge::Mint;
use server::receiver::Behaviour;
use server::trial::{Child, Distributed, Plan, per_second};
use tokio::time::{Instant, sleep};

use super::figure::Figure;
use super::stage::{Context, free_address, until};
use crate::api::{Api, Client};
use crate::process::percentile;

/// The greedy tenant's destinations; the small one has one.
const MANY: u32 = 1_000;

/// The small tenant's destination at the receiver.
const SMALL: u32 = 1;

/// Events that wait at each of them: they outlast the measurement.
const EACH: u32 = 30;

/// The places of the only worker, and how long each receiver takes: so few
/// starts a second that the machine is idle while the places are full.
const PLACES: u32 = 64;
const ANSWER: Duration = Duration::from_millis(250);

/// The small tenant's events, one at a time.
const SINGLES: u32 = 150;

/// What floods the small tenant's destination, for its share.
const FLOOD: u32 = 3_000;

/// How long the share is measured, and how long before that it has to settle.
const SHARED_FOR: Duration = Duration::from_secs(15);
const SETTLED: Duration = Duration::from_secs(3);

/// Of each destination, queued and in flight: so much that it never binds. With
/// the default of 50, a destination alone would start 70 of the 256 a second that
/// the places allow, however they are shared.
const MAX_IN_FLIGHT: u32 = 1_000;

const PATIENCE: Duration = Duration::from_secs(60);

/// Alone, and then beside the greedy tenant.
pub(super) async fn measure(context: &Context) -> anyhow::Result<Vec<Figure>> {
    let measured = context
        .staged((1, 0), vec![room_at_the_receiver()], async |stage| {
            let mut scene = Scene::set_up(context, stage).await?;
            let alone = scene.latencies(stage).await?;
            scene.unleash(stage).await?;
            let beside = scene.latencies(stage).await?;
            let share = scene.share(stage).await?;
            Ok((alone, beside, share))
        })
        .await?;
    let (alone, beside, share) = measured;
    let p99 = |took: &[f64]| percentile(took, 99);
    // Two permits for each place are queued before it, and one is in each.
    let bound = ANSWER.as_secs_f64() * 3_000.0 + 500.0;
    Ok(vec![
        Figure::at_least(
            "share of one destination beside 1,000 of another tenant",
            share,
            45.0,
            "%",
        ),
        Figure::at_most("its events' wait, alone, p99", p99(&alone), bound, "ms"),
        Figure::at_most(
            "its events' wait, beside them, p99",
            p99(&beside),
            bound,
            "ms",
        ),
        Figure::at_most(
            "the same, in waits alone",
            p99(&beside) / p99(&alone),
            20.0,
            "×",
        ),
    ])
}

/// The trial's own destination gets no events; it makes the receiver keep as
/// many arrivals as there will be.
fn room_at_the_receiver() -> Plan {
    Plan {
        events: MANY * EACH + FLOOD + 2 * SINGLES,
        ..Plan::flooded("none", per_second(1), 0, 0)
    }
}

struct Scene {
    mint: Mint,
    small: Tenant,
    greedy: Tenant,
    many: Vec<DestinationId>,
    _worker: Child,
    _api: Api,
}

struct Tenant {
    id: TenantId,
    client: Client,
    single: DestinationId,
}

impl Scene {
    async fn set_up(context: &Context, stage: &mut Distributed) -> anyhow::Result<Self> {
        let program = context.program.clone();
        let mut command = tokio::process::Command::new(&program);
        command
            .arg("worker")
            .envs(stage.shared.environment())
            .env("PACELINE_LISTEN", "127.0.0.1:0")
            .env("PACELINE_WORKER_PLACES", PLACES.to_string());
        let worker = Child::spawn("worker", command)?;
        let api = Api::start("api", program, &stage.shared, &free_address()?)?;
        let small = Tenant::create(stage, &api.address, "small", SMALL).await?;
        let mut greedy = Tenant::create(stage, &api.address, "greedy", SMALL + 1).await?;
        let mut many = vec![greedy.single];
        for number in SMALL + 2..=SMALL + MANY {
            many.push(destination(stage, &mut greedy.client, number).await?);
        }
        Ok(Self {
            mint: Mint::from_system()?,
            small,
            greedy,
            many,
            _worker: worker,
            _api: api,
        })
    }

    /// The greedy tenant hands in all that it has, and takes all there is.
    async fn unleash(&mut self, stage: &mut Distributed) -> anyhow::Result<()> {
        for ids in self.many.chunks(30) {
            let each = (0..EACH).flat_map(|_| ids);
            let event = |id: &DestinationId| event(&self.mint, self.greedy.id, *id);
            let events = each.map(event).collect();
            stage.ingest.accept(events).await?;
        }
        sleep(SETTLED).await;
        Ok(())
    }

    /// One event of the small tenant at a time; milliseconds from the answer
    /// to the request at the receiver, sorted.
    async fn latencies(&mut self, stage: &mut Distributed) -> anyhow::Result<Vec<f64>> {
        let id = self.small.single;
        let body = json!({"destination_id": id, "payload": {"order": 1}}).to_string();
        let mut took = Vec::new();
        for number in 0..SINGLES {
            // Never in step with anything that ticks.
            sleep(Duration::from_millis(37 + u64::from(number * 7 % 23))).await;
            let before = arrivals(stage).0;
            self.small.client.send("POST", "/v1/events", &body).await?;
            let answered = Instant::now();
            let arrived = async || Ok(arrivals(stage).0 > before);
            let at = until("it arrives", PATIENCE, arrived).await?;
            took.push((at - answered).as_secs_f64() * 1_000.0);
        }
        took.sort_unstable_by(f64::total_cmp);
        Ok(took)
    }

    /// Both want all there is: which part of the starts is the small one's.
    async fn share(&mut self, stage: &mut Distributed) -> anyhow::Result<f64> {
        let (tenant, id) = (self.small.id, self.small.single);
        for _ in 0..FLOOD / 500 {
            let events = (0..500).map(|_| event(&self.mint, tenant, id));
            stage.ingest.accept(events.collect()).await?;
        }
        sleep(SETTLED).await;
        let (small, all) = arrivals(stage);
        sleep(SHARED_FOR).await;
        let (small_now, all_now) = arrivals(stage);
        anyhow::ensure!(all_now > all, "nothing arrived");
        Ok((small_now - small) as f64 * 100.0 / (all_now - all) as f64)
    }
}

impl Tenant {
    /// With a key of its own, over the API.
    async fn create(
        stage: &Distributed,
        address: &str,
        name: &str,
        number: u32,
    ) -> anyhow::Result<Self> {
        let mut admin = Client::dial(address).await?;
        let (id, key) = admin.found(name, "enterprise").await?;
        let mut client = Client::dial(address).await?.with_key(&key);
        let single = destination(stage, &mut client, number).await?;
        Ok(Self {
            id: TenantId(id),
            client,
            single,
        })
    }
}

async fn destination(
    stage: &Distributed,
    client: &mut Client,
    number: u32,
) -> anyhow::Result<DestinationId> {
    let receiver = &stage.trial.receiver;
    let slow = Behaviour::Answer {
        status: StatusCode::NO_CONTENT,
        after: ANSWER,
    };
    receiver.set_behaviour(number, slow);
    let body: Value = json!({
        "url": receiver.url(number),
        "unlimited": true,
        "max_in_flight": MAX_IN_FLIGHT,
    });
    let created = client
        .ask("POST", "/v1/destinations", &body.to_string())
        .await?;
    Ok(DestinationId(serde_json::from_value(
        created["id"].clone(),
    )?))
}

fn event(mint: &Mint, tenant: TenantId, to: DestinationId) -> NewEvent {
    NewEvent {
        id: EventId(mint.uuid()),
        tenant,
        audience: Audience::Destination(to),
        event_type: None,
        content_type: "application/json".to_owned(),
        payload: Bytes::from_static(b"{\"order\":1}"),
        idempotency: None,
        trace: None,
        timing: Timing::default(),
    }
}

/// How many have arrived at the small tenant's destination, and at all.
fn arrivals(stage: &Distributed) -> (u64, u64) {
    let record = stage.trial.receiver.record();
    let small = record
        .arrivals
        .iter()
        .filter(|one| one.destination == SMALL);
    (small.count() as u64, record.total)
}
