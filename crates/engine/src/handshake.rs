//! The handshake loop: receivers are asked whether they want to be sent anything.
//!
//! Every worker does it, since workers are who talks to receivers; there is no leader,
//! because the store gives each question to one of them. A crash between the question and
//! its answer asks again half a minute later. Nothing starts meanwhile: what a receiver
//! has not allowed is a limit of zero, in the store.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use domain::handshake::{ASK_TIMEOUT, ASKED_AT_ONCE, Answer, unreachable};
use domain::ids::TenantId;
use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio_util::sync::CancellationToken;

use crate::backoff::Backoff;
use crate::notifier::tell;
use crate::ports::{
    Asker, ClientIdentity, Handshakes, Question, Questions, Schedule, Store, StoreError, Vault,
    Wake,
};
use crate::sealing::open;
use crate::wake::wake_all;

/// How receivers are asked.
#[derive(Debug, Clone, Copy)]
pub struct HandshakeOptions {
    /// Between two looks while nobody more is to be asked.
    pub every: Duration,
    /// And while there may be.
    pub soon: Duration,
    /// Receivers asked at once.
    pub at_once: u32,
}

impl Default for HandshakeOptions {
    fn default() -> Self {
        Self {
            every: Duration::from_secs(1),
            soon: Duration::from_millis(100),
            at_once: 16,
        }
    }
}

/// The first and the longest wait after the store did not answer.
const FAILURE_BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// Why nobody is asked without an origin.
const NO_ORIGIN: &str = "this installation has no origin to ask as: set PACELINE_HANDSHAKE_ORIGIN \
    where its workers run";

/// The loop.
pub struct HandshakeLoop {
    asking: Asking,
    options: HandshakeOptions,
    failures: Backoff,
    /// Whose turn was the last.
    turn: Option<TenantId>,
    under_way: UnderWay,
}

impl HandshakeLoop {
    /// Over these handshakes, asking by this asker, and waking into this schedule.
    #[must_use]
    pub fn new(
        handshakes: Arc<dyn Handshakes>,
        asker: Arc<dyn Asker>,
        schedule: Arc<dyn Schedule>,
        options: HandshakeOptions,
    ) -> Self {
        Self {
            asking: Asking {
                handshakes,
                asker,
                schedule,
                certificates: None,
            },
            options,
            failures: Backoff::new(FAILURE_BACKOFF.0, FAILURE_BACKOFF.1),
            turn: None,
            under_way: UnderWay::default(),
        }
    }

    /// The same, showing the client certificates of destinations that have one.
    #[must_use]
    pub fn showing_certificates(mut self, store: Arc<dyn Store>, vault: Arc<dyn Vault>) -> Self {
        self.asking.certificates = Some((store, vault));
        self
    }

    /// Asks until `shutdown`. Questions that are under way then are left: they are asked
    /// again.
    pub async fn run(mut self, shutdown: CancellationToken) {
        loop {
            let step = async {
                let pause = self.look().await;
                self.under_way.beside(tokio::time::sleep(pause)).await;
            };
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                () = step => {}
            }
        }
    }

    /// Asks those that are due, as many as are asked at once, and waits for what they say.
    /// Returns how long to wait until the next look.
    pub async fn tick(&mut self) -> Duration {
        let pause = self.look().await;
        while self.under_way.answered().await {}
        pause
    }

    /// Begins to ask those that are due, as far as there is room.
    async fn look(&mut self) -> Duration {
        let room = self.options.at_once.saturating_sub(self.under_way.len());
        if room == 0 {
            return self.options.soon;
        }
        let taking = self.asking.clone().take(self.turn, room);
        let questions = match self.under_way.beside(taking).await {
            Ok(questions) => questions,
            Err(error) => {
                tracing::warn!(%error, "handshakes not looked at, will look again");
                return self.failures.failed();
            }
        };
        self.failures.succeeded();
        for question in questions.taken {
            self.under_way.begin(self.asking.clone(), question);
        }
        match questions.turn {
            None => self.options.every,
            turn => {
                self.turn = turn;
                self.options.soon
            }
        }
    }
}

/// Questions without an answer: one that waits for its receiver holds up no other.
#[derive(Default)]
struct UnderWay {
    questions: FuturesUnordered<BoxFuture<'static, TenantId>>,
    /// How many are whose.
    of_tenants: HashMap<TenantId, u32>,
}

impl UnderWay {
    fn len(&self) -> u32 {
        u32::try_from(self.questions.len()).unwrap_or(u32::MAX)
    }

    /// The store counts what a tenant has under way, but forgets one whose URL is another
    /// by now: beyond its share a question is left, and taken again when nobody has it.
    fn begin(&mut self, asking: Asking, question: Question) {
        let tenant = question.tenant;
        let of_tenant = self.of_tenants.entry(tenant).or_default();
        if *of_tenant >= ASKED_AT_ONCE {
            return;
        }
        *of_tenant += 1;
        let asked = async move {
            asking.ask(&question).await;
            tenant
        };
        self.questions.push(asked.boxed());
    }

    /// Waits for one of them; whether there was one.
    async fn answered(&mut self) -> bool {
        let Some(tenant) = self.questions.next().await else {
            return false;
        };
        if let Entry::Occupied(mut of_tenant) = self.of_tenants.entry(tenant) {
            *of_tenant.get_mut() -= 1;
            if *of_tenant.get() == 0 {
                of_tenant.remove();
            }
        }
        true
    }

    /// Does this while they wait.
    async fn beside<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        loop {
            tokio::select! {
                biased;
                done = &mut work => return done,
                true = self.answered() => {}
            }
        }
    }
}

/// What a question needs until its answer is written down.
#[derive(Clone)]
struct Asking {
    handshakes: Arc<dyn Handshakes>,
    asker: Arc<dyn Asker>,
    schedule: Arc<dyn Schedule>,
    /// Where client certificates are, and what opens them.
    certificates: Option<(Arc<dyn Store>, Arc<dyn Vault>)>,
}

impl Asking {
    async fn take(self, turn: Option<TenantId>, room: u32) -> Result<Questions, StoreError> {
        let mut questions = self.handshakes.take_handshakes(turn, room).await?;
        self.identify(&mut questions.taken).await;
        Ok(questions)
    }

    /// Where a certificate cannot be had, the receiver is asked without it, and says what
    /// it thinks of that.
    async fn identify(&self, questions: &mut [Question]) {
        let Some((store, vault)) = &self.certificates else {
            return;
        };
        let ids: Vec<_> = questions.iter().map(|one| one.destination).collect();
        if ids.is_empty() {
            return;
        }
        let targets = match store.targets(&ids).await {
            Ok(targets) => targets,
            Err(error) => {
                tracing::warn!(%error, "client certificates not read");
                return;
            }
        };
        let identities: HashMap<_, ClientIdentity> = (targets.iter())
            .filter_map(|target| {
                let opened = open(vault.as_ref(), &target.secrets).ok()?;
                Some((target.destination, opened.identity?))
            })
            .collect();
        for question in questions {
            question.identity = identities.get(&question.destination).cloned();
        }
    }

    async fn ask(&self, question: &Question) {
        let answer = self.answer(question).await;
        let result = match &answer {
            Answer::Allowed(_) => "allowed",
            Answer::Refused(_) => "refused",
            Answer::Unreachable(_) => "unreachable",
        };
        metrics::counter!("paceline_handshakes_total", "result" => result).increment(1);
        if let Err(error) = self.record(question, &answer).await {
            let destination = question.destination;
            tracing::warn!(%destination, %error, "handshake not written down, will ask again");
        }
    }

    async fn answer(&self, question: &Question) -> Answer {
        let Some(origin) = self.asker.origin() else {
            return unreachable(NO_ORIGIN);
        };
        match self.asker.ask(question, ASK_TIMEOUT).await {
            Ok(reply) => reply.answer(origin),
            Err(error) => unreachable(&error.to_string()),
        }
    }

    async fn record(&self, question: &Question, answer: &Answer) -> Result<(), StoreError> {
        let recorded = self.handshakes.record_handshake(question, answer).await?;
        recorded.told.iter().for_each(tell);
        if recorded.changed {
            wake_all(self.schedule.as_ref(), &[Wake::now(question.destination)]).await;
        }
        Ok(())
    }
}
