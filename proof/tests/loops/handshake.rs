//! Handshakes: who is due is asked, once, and what it answers is written down.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use domain::credentials::ClientCertificate;
use domain::handshake::{ASK_TIMEOUT, Answer, Origin, Reply};
use domain::ids::{DestinationId, TenantId};
use engine::handshake::{HandshakeLoop, HandshakeOptions};
use engine::ports::{
    Asker, ClientIdentity, HandshakeRecorded, Handshakes, Question, Questions, SealedKind,
    SendError, StoreError, Wake,
};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::support::{Event, FOREVER, World, destination, ms, store_away};
use crate::worker_signs::{Open, sealed};

/// A store with so many to ask, and receivers that all answer alike.
struct Few {
    due: Mutex<Vec<Question>>,
    away: bool,
    origin: Option<Origin>,
    reply: Result<Reply, SendError>,
    takes: Duration,
    asked: Mutex<Vec<Question>>,
    recorded: Mutex<Vec<Answer>>,
}

/// The one that never answers.
const SILENT: DestinationId = DestinationId(Uuid::nil());

fn question(number: u32) -> Question {
    Question {
        destination: destination(number.into()),
        // As many tenants as a worker asks at once.
        tenant: TenantId(Uuid::from_u128(u128::from(number) % 16)),
        url: format!("https://receiver.example/{number}"),
        per_minute: 600.try_into().ok(),
        identity: None,
    }
}

fn allowing() -> Few {
    Few {
        due: Mutex::new(vec![question(1)]),
        away: false,
        origin: "hooks.example.com".parse().ok(),
        reply: Ok(Reply {
            status: 200,
            allowed_origin: Some("*".to_owned()),
            allowed_rate: Some("120".to_owned()),
        }),
        takes: Duration::ZERO,
        asked: Mutex::default(),
        recorded: Mutex::default(),
    }
}

#[async_trait]
impl Handshakes for Few {
    async fn take_handshakes(
        &self,
        _: Option<TenantId>,
        limit: u32,
    ) -> Result<Questions, StoreError> {
        if self.away {
            return Err(store_away());
        }
        let mut due = self.due.lock().unwrap();
        let taken = due.len().min(limit as usize);
        let taken: Vec<Question> = due.drain(..taken).collect();
        let turn = taken.last().map(|last| last.tenant);
        Ok(Questions { taken, turn })
    }

    async fn record_handshake(
        &self,
        _: &Question,
        answer: &Answer,
    ) -> Result<HandshakeRecorded, StoreError> {
        self.recorded.lock().unwrap().push(answer.clone());
        Ok(HandshakeRecorded {
            changed: matches!(answer, Answer::Allowed(_)),
            told: None,
        })
    }
}

#[async_trait]
impl Asker for Few {
    fn origin(&self) -> Option<&Origin> {
        self.origin.as_ref()
    }

    async fn ask(&self, question: &Question, timeout: Duration) -> Result<Reply, SendError> {
        assert_eq!(timeout, ASK_TIMEOUT);
        self.asked.lock().unwrap().push(question.clone());
        let is_silent = question.destination == SILENT;
        tokio::time::sleep(if is_silent { FOREVER } else { self.takes }).await;
        self.reply.clone()
    }
}

fn over(world: &World, few: &Arc<Few>) -> HandshakeLoop {
    let options = HandshakeOptions::default();
    HandshakeLoop::new(few.clone(), few.clone(), world.schedule.clone(), options)
}

/// What one step writes down, and whom it wakes.
async fn step(few: Few) -> (Vec<Answer>, Vec<Vec<Wake>>, Arc<Few>) {
    let (world, few) = (World::new(), Arc::new(few));
    let mut asking = over(&world, &few);
    let HandshakeOptions { soon, every, .. } = HandshakeOptions::default();
    assert_eq!([asking.tick().await, asking.tick().await], [soon, every]);
    let woken = world.journal.pick(|event| match event {
        Event::Wake(wakes) => Some(wakes),
        _ => None,
    });
    let recorded = few.recorded.lock().unwrap().clone();
    (recorded, woken, few)
}

#[tokio::test(start_paused = true)]
async fn who_allows_is_written_down_and_woken() {
    let (recorded, woken, few) = step(allowing()).await;
    assert_eq!(recorded, [Answer::Allowed(120.try_into().ok())]);
    assert_eq!(woken, [[Wake::now(destination(1))]]);
    assert_eq!(*few.asked.lock().unwrap(), [question(1)]);
}

#[tokio::test(start_paused = true)]
async fn a_receiver_is_shown_the_client_certificate() {
    let (world, few) = (World::new(), Arc::new(allowing()));
    let certificate = ClientCertificate::new("chain".to_owned(), "key".to_owned().into());
    let kept = sealed(SealedKind::ClientCertificate, &certificate.expose());
    let secret = kept.place.secret;
    world.store.secrets.lock().unwrap().push(kept);
    let mut asking = over(&world, &few).showing_certificates(world.store.clone(), Arc::new(Open));
    asking.tick().await;
    let expected = Question {
        identity: Some(ClientIdentity {
            secret,
            certificate: Arc::new(certificate),
        }),
        ..question(1)
    };
    assert_eq!(*few.asked.lock().unwrap(), [expected]);
}

#[tokio::test(start_paused = true)]
async fn who_refuses_or_is_away_is_not_woken() {
    let refusing = Few {
        reply: Ok(Reply {
            status: 405,
            ..Reply::default()
        }),
        ..allowing()
    };
    let (recorded, woken, _) = step(refusing).await;
    assert_eq!(recorded, [Answer::Refused("it answered 405".to_owned())]);
    assert_eq!(woken, [] as [Vec<Wake>; 0]);
    let gone = Few {
        reply: Err(SendError::Connect("refused".to_owned())),
        ..allowing()
    };
    let (recorded, woken, _) = step(gone).await;
    let why = "connect failed: refused".to_owned();
    assert_eq!(recorded, [Answer::Unreachable(why)]);
    assert_eq!(woken, [] as [Vec<Wake>; 0]);
}

#[tokio::test(start_paused = true)]
async fn nobody_is_asked_without_an_origin() {
    let nameless = Few {
        origin: None,
        ..allowing()
    };
    let (recorded, _, few) = step(nameless).await;
    assert!(few.asked.lock().unwrap().is_empty());
    let [Answer::Unreachable(why)] = &recorded[..] else {
        panic!("{recorded:?}");
    };
    assert!(why.contains("PACELINE_HANDSHAKE_ORIGIN"), "{why}");
}

#[tokio::test(start_paused = true)]
async fn so_many_are_asked_at_once_and_the_next_soon() {
    let HandshakeOptions {
        at_once,
        soon,
        every,
    } = HandshakeOptions::default();
    let many = Few {
        due: Mutex::new((1..=at_once + 3).map(question).collect()),
        takes: Duration::from_secs(9),
        ..allowing()
    };
    let (world, few) = (World::new(), Arc::new(many));
    let mut asking = over(&world, &few);
    let began = tokio::time::Instant::now();
    assert_eq!(asking.tick().await, soon);
    assert_eq!(began.elapsed(), Duration::from_secs(9), "together");
    assert_eq!(few.asked.lock().unwrap().len(), at_once as usize);
    assert_eq!([asking.tick().await, asking.tick().await], [soon, every]);
    assert_eq!(few.recorded.lock().unwrap().len(), at_once as usize + 3);
}

#[tokio::test(start_paused = true)]
async fn one_that_does_not_answer_holds_up_no_other() {
    let (world, few) = (World::new(), Arc::new(allowing()));
    few.due.lock().unwrap().insert(0, question(0));
    let shutdown = CancellationToken::new();
    let running = tokio::spawn(over(&world, &few).run(shutdown.clone()));
    tokio::time::sleep(ms(500)).await;
    few.due.lock().unwrap().push(question(2));
    tokio::time::sleep(ms(1_000)).await;
    assert_eq!(few.asked.lock().unwrap().len(), 3);
    assert_eq!(
        few.recorded.lock().unwrap().len(),
        2,
        "and not of the first"
    );
    shutdown.cancel();
    running.await.unwrap();
}

/// Whatever the store says: it forgets what is asked of one whose URL has changed.
#[tokio::test(start_paused = true)]
async fn one_tenant_does_not_take_all_places() {
    let few = Few {
        due: Mutex::new((0..6).map(|number| question(16 * number)).collect()),
        takes: FOREVER,
        ..allowing()
    };
    let (world, few) = (World::new(), Arc::new(few));
    let shutdown = CancellationToken::new();
    let running = tokio::spawn(over(&world, &few).run(shutdown.clone()));
    tokio::time::sleep(ms(500)).await;
    few.due.lock().unwrap().push(question(1));
    tokio::time::sleep(ms(1_500)).await;
    let asked: Vec<_> = (few.asked.lock().unwrap().iter())
        .map(|one| one.tenant)
        .collect();
    let [one, other] = [question(0).tenant, question(1).tenant];
    assert_eq!(asked, [one, one, one, one, other]);
    shutdown.cancel();
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn it_waits_for_a_store_that_is_away_and_ends_when_told() {
    let away = Few {
        away: true,
        ..allowing()
    };
    let (world, few) = (World::new(), Arc::new(away));
    let mut asking = over(&world, &few);
    let pauses = [asking.tick().await, asking.tick().await];
    assert!(pauses[0] >= ms(50) && pauses[1] > pauses[0], "{pauses:?}");

    let slow = Few {
        takes: FOREVER,
        ..allowing()
    };
    let few = Arc::new(slow);
    let shutdown = CancellationToken::new();
    let running = tokio::spawn(over(&world, &few).run(shutdown.clone()));
    tokio::time::sleep(ms(10)).await;
    assert_eq!(few.asked.lock().unwrap().len(), 1);
    shutdown.cancel();
    tokio::time::timeout(ms(10), running)
        .await
        .unwrap()
        .unwrap();
    assert!(few.recorded.lock().unwrap().is_empty(), "it is asked again");
}
