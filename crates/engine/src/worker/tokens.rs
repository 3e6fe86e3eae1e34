//! Tokens of destinations that are let in by one: got before the start, kept until
//! shortly before they end.
//!
//! One request at a time for a destination, and so many for all. A request belongs to
//! nobody, as a dial does: who waited for it may have no more time, and its answer is for
//! who asks next. What a destination's token comes to is [`Account`]'s to say. Tokens are
//! in memory alone; that there is none, and why, is written down for people, a batch of
//! destinations at a time.

use std::collections::{BTreeMap, HashMap};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use domain::credentials::{Account, Granted, Look, Token, What, read_answer};
use domain::ids::{DestinationId, SecretId};
use domain::remark::Remark;
use futures_util::FutureExt;
use rand::RngExt;
use rand::rngs::StdRng;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::ports::{Granter, MAX_ROWS, TokenBook, TokenNote};
use crate::sealing::TokenClient;

/// For one request, with its dial.
const ASK_TIMEOUT: Duration = Duration::from_secs(5);

/// Clients whose tokens are kept; beyond it all but those that are being asked for
/// begin anew. At most 8 KiB each.
const MOST: usize = 8_192;

/// Requests at once: servers that hang keep theirs for [`ASK_TIMEOUT`], and later each
/// time.
const AT_ONCE: usize = 256;

/// How often what is new is written down.
const EVERY: Duration = Duration::from_secs(1);

/// Who finds no room for its account looks again after that.
const NO_ROOM: Duration = Duration::from_secs(1);

/// The tokens of one worker.
pub(super) struct Tokens {
    shared: Arc<Shared>,
    /// Requests under way; they end with this.
    tasks: Mutex<JoinSet<()>>,
}

struct Shared {
    granter: Arc<dyn Granter>,
    book: Arc<dyn TokenBook>,
    state: Mutex<State>,
    at_once: Semaphore,
    rng: Arc<Mutex<StdRng>>,
    /// Where accounts count their time from.
    began: Instant,
}

#[derive(Default)]
struct State {
    /// By the client's secret: another client begins anew.
    accounts: HashMap<SecretId, Known>,
    /// To be written down.
    notes: BTreeMap<SecretId, Option<String>>,
}

#[derive(Default)]
struct Known {
    account: Account,
    answered: Arc<Notify>,
}

/// There is no token: nothing of the destination can start for so long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PutOff(pub(super) Duration);

impl Tokens {
    pub(super) fn new(
        granter: Arc<dyn Granter>,
        book: Arc<dyn TokenBook>,
        rng: Arc<Mutex<StdRng>>,
    ) -> Self {
        Self {
            shared: Arc::new(Shared {
                granter,
                book,
                state: Mutex::default(),
                at_once: Semaphore::new(AT_ONCE),
                rng,
                began: Instant::now(),
            }),
            tasks: Mutex::default(),
        }
    }

    /// A token for one request. Dropped, what it has asked for goes on.
    pub(super) async fn of(
        &self,
        destination: DestinationId,
        client: &TokenClient,
    ) -> Result<Token, PutOff> {
        loop {
            let (look, answered) = self.shared.look(client.secret)?;
            // Before anybody is asked, or the answer could come before this waits.
            let mut answered = std::pin::pin!(answered.notified_owned());
            answered.as_mut().enable();
            if look.asks {
                self.ask(destination, client);
            }
            match look.what {
                What::Use(token) => return Ok(token),
                What::PutOff(lasts) => return Err(PutOff(lasts)),
                What::Wait => {}
            }
            // It may have come between the look and this.
            if self.shared.is_asking(client.secret) {
                answered.await;
            }
        }
    }

    fn ask(&self, destination: DestinationId, client: &TokenClient) {
        let (shared, client) = (Arc::clone(&self.shared), client.clone());
        let mut tasks = lock(&self.tasks);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(async move { shared.ask(destination, &client).await });
    }

    /// The receiver has refused this token.
    pub(super) fn throw_away(&self, client: &TokenClient, token: &Token) {
        let now = self.shared.now();
        if let Some(known) = self.shared.state().accounts.get_mut(&client.secret) {
            known.account.throw_away(token, now);
        }
    }

    /// Writes down what is new again and again, until it is dropped.
    pub(super) async fn run(self: Arc<Self>) {
        loop {
            sleep(EVERY).await;
            self.tick().await;
        }
    }

    /// Writes down what is new. What cannot be written is said again if it is still so.
    pub(super) async fn tick(&self) {
        let notes = std::mem::take(&mut self.shared.state().notes);
        let notes: Vec<TokenNote> = (notes.into_iter())
            .map(|(secret, trouble)| TokenNote { secret, trouble })
            .collect();
        for page in notes.chunks(MAX_ROWS) {
            if let Err(error) = self.shared.book.note_tokens(page).await {
                tracing::debug!(%error, "what tokens came to is not written down");
            }
        }
    }
}

impl Shared {
    /// How long this has been going on.
    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn is_asking(&self, secret: SecretId) -> bool {
        let state = self.state();
        let known = state.accounts.get(&secret);
        known.is_some_and(|known| known.account.is_asking())
    }

    /// What follows for one that needs a token, and what tells it of an answer.
    fn look(&self, secret: SecretId) -> Result<(Look, Arc<Notify>), PutOff> {
        let now = self.now();
        let mut state = self.state();
        let accounts = &mut state.accounts;
        if accounts.len() >= MOST && !accounts.contains_key(&secret) {
            accounts.retain(|_, known| known.account.is_asking());
            if accounts.len() >= MOST {
                return Err(PutOff(NO_ROOM));
            }
        }
        let known = accounts.entry(secret).or_default();
        Ok((known.account.look(now), Arc::clone(&known.answered)))
    }

    async fn ask(&self, destination: DestinationId, client: &TokenClient) {
        let asked = AssertUnwindSafe(self.granted(destination, client)).catch_unwind();
        let (granted, asked_at) = asked.await.unwrap_or_else(|_panic| {
            tracing::error!("asking for a token panicked");
            (Err("asking for a token panicked".to_owned()), self.now())
        });
        let result = match granted {
            Ok(_) => "granted",
            Err(_) => "refused",
        };
        metrics::counter!("paceline_token_requests_total", "result" => result).increment(1);
        let (now, jitter) = (self.now(), lock(&self.rng).random());
        let mut state = self.state();
        let State { accounts, notes } = &mut *state;
        // It is kept as long as an answer is awaited.
        let Some(known) = accounts.get_mut(&client.secret) else {
            return;
        };
        match granted {
            Ok(granted) => {
                if known.account.granted(granted, asked_at, now) {
                    notes.insert(client.secret, None);
                }
            }
            Err(why) => {
                tracing::debug!(%destination, why, "no token");
                known.account.refused(now, jitter);
                notes.insert(client.secret, Some(why));
            }
        }
        known.answered.notify_waiters();
    }

    /// What a request came to, and when it began.
    async fn granted(
        &self,
        destination: DestinationId,
        client: &TokenClient,
    ) -> (Result<Granted, String>, Duration) {
        let _one = self.at_once.acquire().await;
        let asked_at = self.now();
        let asking = (self.granter).ask_for_token(destination, &client.client, ASK_TIMEOUT);
        let granted = match timeout(ASK_TIMEOUT, asking).await {
            Ok(Ok(answer)) => read_answer(answer.status, &answer.body),
            Ok(Err(error)) => Err(format!("the token server cannot be asked: {error}")),
            Err(_elapsed) => Err(format!(
                "the token server has not answered within {ASK_TIMEOUT:?}"
            )),
        };
        let granted = granted.map_err(|why| Remark::new(&why).to_string());
        (granted, asked_at)
    }
}

/// Each is whole between any two of its uses, so a panic elsewhere that held the lock has
/// not broken it.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
