//! Keys that are asked for together.
//!
//! Whoever wants to know a key joins the round that forms, which is asked for in one
//! statement when it is its turn. So a crowd that guesses ids costs a statement for each
//! thousand of them, and whoever comes after it waits for a few.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use domain::access::KeyId;
use engine::ports::{CatalogError, Credential, Keys, MAX_ROWS, StoreError};
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;

/// How many rounds are asked for at one time: one that a connection has lost stops no
/// other.
const ASKED_AT_ONCE: usize = 4;

/// A line of rounds, of which so many at a time are asked for.
#[derive(Clone)]
pub(super) struct Line {
    keys: Arc<dyn Keys>,
    rounds: Arc<Mutex<VecDeque<Round>>>,
    turns: Arc<Semaphore>,
}

/// Keys whose answer comes as one.
struct Round {
    ids: HashSet<KeyId>,
    tell: watch::Sender<Option<Answer>>,
}

/// What the store said of a round; or why it could not be asked.
pub(super) type Answer = Result<Found, Arc<str>>;

/// What it knows.
#[derive(Debug, Clone)]
pub(super) struct Found {
    /// Of those that are in force.
    pub(super) credentials: Arc<HashMap<KeyId, Credential>>,
    /// When it was asked: before its answer, so that what we believe is never
    /// older than it looks.
    pub(super) asked_at: Instant,
}

impl Line {
    pub(super) fn new(keys: Arc<dyn Keys>) -> Self {
        Self {
            keys,
            rounds: Arc::default(),
            turns: Arc::new(Semaphore::new(ASKED_AT_ONCE)),
        }
    }

    /// What the store says of a key, and of those that were asked for with it.
    pub(super) async fn ask(&self, id: KeyId) -> Result<Found, StoreError> {
        let mut answer = self.join(id);
        let said = answer.wait_for(Option::is_some).await;
        let said = said.ok().and_then(|said| said.clone());
        match said.unwrap_or_else(|| Err("the round ended without an answer".into())) {
            Ok(found) => Ok(found),
            Err(problem) => Err(StoreError::Unavailable(problem.to_string())),
        }
    }

    fn join(&self, id: KeyId) -> watch::Receiver<Option<Answer>> {
        let mut rounds = self.rounds();
        if let Some(last) = rounds.back_mut().filter(|last| last.ids.len() < MAX_ROWS) {
            last.ids.insert(id);
            return last.tell.subscribe();
        }
        let (tell, answer) = watch::channel(None);
        let ids = HashSet::from([id]);
        rounds.push_back(Round { ids, tell });
        drop(rounds);
        // In a task of its own: a client that hangs up must not leave a store in
        // mid-transaction, nor those who joined it without an answer.
        tokio::spawn(self.clone().ask_for_the_first());
        answer
    }

    /// One such task for each round.
    async fn ask_for_the_first(self) {
        let Ok(_turn) = self.turns.acquire().await else {
            return;
        };
        let Some(round) = self.rounds().pop_front() else {
            return;
        };
        let asked_at = Instant::now();
        let ids: Vec<KeyId> = round.ids.into_iter().collect();
        let answer = match self.keys.credentials(&ids).await {
            Ok(found) => Ok(Found {
                credentials: Arc::new(found.into_iter().collect()),
                asked_at,
            }),
            Err(CatalogError::Store(StoreError::Unavailable(problem))) => Err(problem.into()),
            Err(error) => Err(error.to_string().into()),
        };
        round.tell.send_replace(Some(answer));
    }

    fn rounds(&self) -> MutexGuard<'_, VecDeque<Round>> {
        // What a panic left behind is still a line.
        self.rounds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
