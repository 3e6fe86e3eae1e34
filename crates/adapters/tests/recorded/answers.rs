//! Target `answer`: from any bytes that a receiver answers with to the row in the
//! ledger, through the real sender, worker and store.
//!
//! Whatever came back, the attempt ends and says how; and an attempt of another
//! destination, whose outcome is recorded beside it, ends as it should.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use adapters::http::{AllowedNetwork, HttpOptions, HttpSender, Policy};
use adapters::in_process::{InProcessQueue, InProcessSchedule};
use contract::store::World;
use domain::attempt::AttemptState;
use domain::ids::DestinationId;
use domain::permit::PermitGroup;
use engine::ports::{AttemptView, DeliveryQueue, Store};
use engine::worker::{Worker, WorkerOptions};
use fuzzing::{Context, Verdict, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

/// What stands in an answer for the id of the event that was sent.
const EVENT: &[u8] = b"EVENT";

/// Longer than any step of it, on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(30);

/// A worker over the store, and two receivers: one answers what it is told to, the
/// other 200.
struct Scene {
    world: World,
    queue: Arc<InProcessQueue>,
    answer: Arc<Mutex<Vec<u8>>>,
    hostile_port: u16,
    sound: DestinationId,
}

/// Runs the target over one store.
pub(crate) fn any_answer_is_recorded<S: Store + 'static>(
    runtime: &tokio::runtime::Runtime,
    store: Arc<S>,
    world: World,
) -> fuzzing::Outcome {
    let scene = runtime.block_on(Scene::open(store, world));
    fuzzing::run(env!("CARGO_MANIFEST_DIR"), "answer", 150, |input| {
        runtime.block_on(scene.play(input))
    })
}

impl Scene {
    async fn open<S: Store + 'static>(store: Arc<S>, world: World) -> Self {
        let answer = Arc::new(Mutex::new(Vec::new()));
        let hostile_port = receiver(Arc::clone(&answer)).await;
        let sound_port = receiver(Arc::new(Mutex::new(
            b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".to_vec(),
        )))
        .await;
        let queue = Arc::new(InProcessQueue::new(100));
        let policy = Policy {
            allow_http: true,
            networks: vec!["127.0.0.0/8:*".parse::<AllowedNetwork>().unwrap()],
            ..Policy::default()
        };
        let sender = HttpSender::new(HttpOptions {
            policy,
            ..HttpOptions::default()
        });
        let worker = Worker::new(
            store,
            Arc::new(InProcessSchedule::new()),
            Arc::clone(&queue) as Arc<dyn DeliveryQueue>,
            Arc::new(sender),
            WorkerOptions {
                request_timeout: Duration::from_secs(5),
                ..WorkerOptions::default()
            },
        );
        tokio::spawn(worker.run(CancellationToken::new()));
        let sound = to(&world, sound_port).await;
        Self {
            world,
            queue,
            answer,
            hostile_port,
            sound,
        }
    }

    /// One event to each of the two receivers.
    async fn play(&self, input: &[u8]) -> Verdict {
        *self.answer.lock().unwrap() = input.to_vec();
        // A new one each time: the breaker of one that fails would open.
        let hostile = to(&self.world, self.hostile_port).await;
        let batches = "update destinations set batch_max_events = 10, batch_max_wait_ms = 0";
        self.world
            .sql(&format!("{batches} where id = '{hostile}'"))
            .await;
        let events = self.world.accept(self.sound, 1).await;
        self.world.accept(hostile, 1).await;
        let answered = self
            .ended(hostile, |one| one.state != AttemptState::NotSent)
            .await?;
        ensure!(
            matches!(
                answered.state,
                AttemptState::Succeeded | AttemptState::Failed
            ),
            "it ended {:?}",
            answered.state
        );
        let is_delivered =
            |one: &AttemptView| one.event == events[0] && one.state == AttemptState::Succeeded;
        self.ended(self.sound, is_delivered).await?;
        let error = answered.error.as_deref().unwrap_or_default();
        ensure!(
            !error.contains("the store refused"),
            "it got as far as the store: {error}"
        );
        ensure!(!error.contains(char::is_control), "{error:?}");
        Ok(format!("{:?} {:?}", answered.state, answered.status))
    }

    /// The attempt, once its outcome is in the ledger. On a busy machine a permit may
    /// end unused, so what waits is admitted again.
    async fn ended(
        &self,
        destination: DestinationId,
        is_it: impl Fn(&AttemptView) -> bool,
    ) -> fuzzing::Result<AttemptView> {
        let found = tokio::time::timeout(PATIENCE, async {
            loop {
                let permits = self.world.admit(destination).await;
                self.queue.publish(&PermitGroup::split(&permits)).await?;
                for _ in 0..100 {
                    let attempts = self.world.attempts(destination).await;
                    let mut ended = attempts.into_iter().filter(|one| one.finished_at.is_some());
                    if let Some(one) = ended.find(&is_it) {
                        return Ok(one);
                    }
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
            }
        });
        found.await.context("its outcome is never recorded")?
    }
}

async fn to(world: &World, port: u16) -> DestinationId {
    let destination = world.destination().unlimited().create().await;
    let url = format!("update destinations set url = 'http://127.0.0.1:{port}/'");
    world
        .sql(&format!("{url} where id = '{destination}'"))
        .await;
    destination
}

/// Answers each request with these bytes, and hangs up.
async fn receiver(answer: Arc<Mutex<Vec<u8>>>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(respond(stream, Arc::clone(&answer)));
        }
    });
    port
}

async fn respond(mut stream: TcpStream, answer: Arc<Mutex<Vec<u8>>>) {
    let mut request = Vec::new();
    let mut piece = [0_u8; 4_096];
    // Our bodies end in `}` or `]`; heads do not.
    while !matches!(request.last(), Some(b'}' | b']')) {
        match stream.read(&mut piece).await {
            Ok(read) if read > 0 => request.extend_from_slice(&piece[..read]),
            _ => return,
        }
    }
    let answer = answer.lock().unwrap().clone();
    let _ = stream.write_all(&with_id(&answer, &request)).await;
    let _ = stream.shutdown().await;
}

/// The answer, naming the event of a batch of one. Its length may change: what is
/// sent beyond `content-length` is not read.
fn with_id(answer: &[u8], request: &[u8]) -> Vec<u8> {
    let request = String::from_utf8_lossy(request);
    let id = (request.split_once("\"id\":\"")).and_then(|(_, rest)| rest.split_once('"'));
    let id = id.map_or("", |(id, _)| id).as_bytes();
    let mut named = Vec::with_capacity(answer.len());
    let mut rest = answer;
    while let Some(at) = rest.windows(EVENT.len()).position(|word| word == EVENT) {
        named.extend_from_slice(&rest[..at]);
        named.extend_from_slice(id);
        rest = &rest[at + EVENT.len()..];
    }
    named.extend_from_slice(rest);
    named
}
