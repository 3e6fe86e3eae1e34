//! Destinations that are let in by a token: nothing of them is sent, claimed or burnt
//! without one, and nobody else waits for theirs.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use domain::credentials::{ClientAuth, OAuthClient, OAuthFacts};
use domain::ids::DestinationId;
use domain::permit::Permit;
use engine::ports::{
    Granter, SealedKind, SendError, StoreError, TokenAnswer, TokenBook, TokenNote,
};
use engine::worker::{Worker, WorkerOptions};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use zeroize::Zeroizing;

use crate::support::{Event, T0, World, answer, destination, in_slot, ms, pass, permit, settle};
use crate::worker_signs::{Open, SECRET, requests, sealed};

/// A token server, and where it is written down that it gives none.
struct TokenServer {
    /// What it answers, the next first; the last again and again.
    answers: Mutex<Vec<(u16, String)>>,
    /// Nothing is answered before.
    hangs: Mutex<Option<Arc<Notify>>>,
    asked: Mutex<u32>,
    notes: Mutex<Vec<TokenNote>>,
}

#[async_trait]
impl Granter for TokenServer {
    async fn ask_for_token(
        &self,
        _: DestinationId,
        client: &OAuthClient,
        _: Duration,
    ) -> Result<TokenAnswer, SendError> {
        assert_eq!(client.secret(), "canary");
        *self.asked.lock().unwrap() += 1;
        let hangs = self.hangs.lock().unwrap().clone();
        if let Some(hangs) = hangs {
            hangs.notified().await;
        }
        let mut answers = self.answers.lock().unwrap();
        let (status, body) = match answers.len() {
            1 => answers[0].clone(),
            _ => answers.remove(0),
        };
        Ok(TokenAnswer {
            status,
            body: Bytes::from(body),
        })
    }
}

#[async_trait]
impl TokenBook for TokenServer {
    async fn note_tokens(&self, notes: &[TokenNote]) -> Result<(), StoreError> {
        self.notes.lock().unwrap().extend(notes.iter().cloned());
        Ok(())
    }
}

impl TokenServer {
    fn answering(answers: &[(u16, &str)]) -> Arc<Self> {
        let answers = answers
            .iter()
            .map(|(status, body)| (*status, (*body).to_owned()));
        Arc::new(Self {
            answers: Mutex::new(answers.collect()),
            hangs: Mutex::default(),
            asked: Mutex::default(),
            notes: Mutex::default(),
        })
    }

    fn asked(&self) -> u32 {
        *self.asked.lock().unwrap()
    }

    fn troubles(&self) -> Vec<Option<String>> {
        let notes = self.notes.lock().unwrap();
        notes.iter().map(|note| note.trouble.clone()).collect()
    }
}

const A: (u16, &str) = (200, r#"{"access_token":"aaa","expires_in":3600}"#);
const B: (u16, &str) = (200, r#"{"access_token":"bbb","expires_in":3600}"#);
const REFUSED: (u16, &str) = (401, r#"{"error":"invalid_client"}"#);

/// A worker of one destination that wants tokens.
async fn worker(world: &World, server: &Arc<TokenServer>) -> JoinHandle<()> {
    let facts = OAuthFacts {
        token_url: "https://login.example/token".to_owned(),
        client_id: "paceline".to_owned(),
        scopes: Vec::new(),
        audience: None,
        client_auth: ClientAuth::Basic,
    };
    let client = OAuthClient::new(facts, Zeroizing::new("canary".to_owned())).unwrap();
    let all = [
        sealed(
            SealedKind::Signs(domain::signature::SecretKind::Hmac),
            SECRET,
        ),
        sealed(SealedKind::OAuth2, &client.expose()),
    ];
    world.store.secrets.lock().unwrap().extend(all);
    let worker = Worker::new(
        world.store.clone(),
        world.schedule.clone(),
        world.queue.clone(),
        world.sender.clone(),
        WorkerOptions::default(),
    );
    let worker = worker
        .opening_with(Arc::new(Open))
        .asking_for_tokens(server.clone(), server.clone());
    let running = tokio::spawn(worker.run(world.shutdown.clone()));
    settle().await;
    running
}

/// The tokens of the requests so far.
fn carried(world: &World) -> Vec<String> {
    let all = requests(world).into_iter();
    all.map(|request| request.token.unwrap().authorization().to_string())
        .collect()
}

/// A permit whose slot is now.
fn fresh(world: &World, number: i64) -> Permit {
    in_slot(permit(number), world.store.now().since(T0))
}

fn claims(world: &World) -> usize {
    let claims = world.journal.pick(|event| match event {
        Event::Claim(_, permits) => Some(permits.len()),
        _ => None,
    });
    claims.into_iter().sum()
}

#[tokio::test(start_paused = true)]
async fn one_token_is_got_before_the_start_and_carried_by_all() {
    let (world, server) = (World::new(), TokenServer::answering(&[A]));
    let _worker = worker(&world, &server).await;
    world
        .queue
        .delivers(&[fresh(&world, 1), fresh(&world, 2), fresh(&world, 3)]);
    pass(ms(500)).await;
    assert_eq!(carried(&world), ["Bearer aaa"; 3]);
    assert_eq!(server.asked(), 1, "one at a time, and kept");
    pass(ms(1_000)).await;
    assert_eq!(server.troubles(), [None], "there may have been one before");
}

#[tokio::test(start_paused = true)]
async fn without_a_token_permits_go_back_and_nothing_is_claimed() {
    let server = TokenServer::answering(&[REFUSED, A]);
    let world = World::new();
    let _worker = worker(&world, &server).await;
    world.queue.delivers(&[fresh(&world, 1), fresh(&world, 2)]);
    pass(ms(10)).await;
    assert_eq!((requests(&world).len(), claims(&world)), (0, 0));
    assert_eq!(world.journal.released().len(), 2, "at once");
    let deferred = world.journal.deferred();
    assert!(!deferred.is_empty());
    for deferral in deferred {
        assert_eq!(deferral.destination, destination(1));
        assert!(deferral.lasts >= ms(700) && deferral.lasts <= ms(1_000));
    }
    pass(ms(2_000)).await;
    let said = "the token server answered 401: invalid_client";
    assert_eq!(server.troubles(), [Some(said.to_owned())]);
    // Admitted again after that, it asks again; who needs a token does not wait.
    world.queue.delivers(&[fresh(&world, 3)]);
    pass(ms(1_100)).await;
    assert_eq!((requests(&world).len(), server.asked()), (0, 2));
    world.queue.delivers(&[fresh(&world, 4)]);
    pass(ms(1_100)).await;
    assert_eq!(carried(&world), ["Bearer aaa"]);
    assert_eq!(server.troubles(), [Some(said.to_owned()), None]);
}

/// Each of its permits waits for a part of its own time, and goes back.
#[tokio::test(start_paused = true)]
async fn a_token_server_that_hangs_holds_up_nobody_else() {
    let (world, server) = (World::new(), TokenServer::answering(&[A]));
    *server.hangs.lock().unwrap() = Some(Arc::default());
    let _worker = worker(&world, &server).await;
    world.queue.delivers(&[fresh(&world, 1)]);
    pass(ms(2_100)).await;
    assert_eq!(world.journal.released().len(), 1);
    assert_eq!((requests(&world).len(), claims(&world)), (0, 0));
    pass(ms(4_000)).await;
    let said = "the token server has not answered within 5s";
    assert_eq!(server.troubles(), [Some(said.to_owned())]);
    // From then on nobody waits for it.
    world.queue.delivers(&[fresh(&world, 2)]);
    pass(ms(10)).await;
    assert_eq!(world.journal.released().len(), 2);
    assert_eq!(server.asked(), 2);
    // What it answers after all is for who asks next.
    let hangs = server.hangs.lock().unwrap().take().unwrap();
    hangs.notify_waiters();
    pass(ms(1_100)).await;
    world.queue.delivers(&[fresh(&world, 3)]);
    pass(ms(100)).await;
    assert_eq!(carried(&world), ["Bearer aaa"]);
    assert_eq!(server.asked(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_token_that_the_receiver_refuses_is_thrown_away() {
    let (world, server) = (World::new(), TokenServer::answering(&[A, B]));
    let _worker = worker(&world, &server).await;
    world.queue.delivers(&[fresh(&world, 1)]);
    pass(ms(100)).await;
    world.sender.send.answers(|_| Ok(answer(401)));
    // A fresh one is not: the next would be refused as well.
    world.queue.delivers(&[fresh(&world, 2)]);
    pass(ms(100)).await;
    pass(ms(20_000)).await;
    world.queue.delivers(&[fresh(&world, 3)]);
    pass(ms(100)).await;
    world.queue.delivers(&[fresh(&world, 4)]);
    pass(ms(100)).await;
    let (a, b) = ("Bearer aaa", "Bearer bbb");
    assert_eq!(carried(&world), [a, a, a, b]);
    assert_eq!(server.asked(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_token_is_renewed_before_it_ends_and_nobody_waits_for_that() {
    let (world, server) = (World::new(), TokenServer::answering(&[A, B]));
    let _worker = worker(&world, &server).await;
    world.queue.delivers(&[fresh(&world, 1)]);
    pass(ms(100)).await;
    pass(ms(3_550_000)).await;
    let hangs: Arc<Notify> = Arc::default();
    *server.hangs.lock().unwrap() = Some(Arc::clone(&hangs));
    world.queue.delivers(&[fresh(&world, 2)]);
    pass(ms(100)).await;
    assert_eq!(carried(&world).len(), 2, "by the old one");
    assert_eq!(server.asked(), 2);
    hangs.notify_waiters();
    pass(ms(100)).await;
    world.queue.delivers(&[fresh(&world, 3)]);
    pass(ms(100)).await;
    assert_eq!(carried(&world), ["Bearer aaa", "Bearer aaa", "Bearer bbb"]);
    assert_eq!(server.asked(), 2);
}
