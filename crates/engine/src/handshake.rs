//! The handshake loop: receivers are asked whether they want to be sent anything.
//!
//! Every worker does it, since workers are who talks to receivers; there is no leader,
//! because the store gives each question to one of them. A crash between the question and
//! its answer asks again half a minute later. Nothing starts meanwhile: what a receiver
//! has not allowed is a limit of zero, in the store.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use domain::handshake::{ASK_TIMEOUT, Answer, unreachable};
use futures_util::future::join_all;
use tokio_util::sync::CancellationToken;

use crate::backoff::Backoff;
use crate::notifier::tell;
use crate::ports::{
    Asker, ClientIdentity, Handshakes, Question, Schedule, Store, StoreError, Vault, Wake,
};
use crate::sealing::open;
use crate::wake::wake_all;

/// How receivers are asked.
#[derive(Debug, Clone, Copy)]
pub struct HandshakeOptions {
    /// Between two looks while nobody is to be asked.
    pub every: Duration,
    /// Receivers asked at once.
    pub batch: u32,
}

impl Default for HandshakeOptions {
    fn default() -> Self {
        Self {
            every: Duration::from_secs(1),
            batch: 16,
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
    handshakes: Arc<dyn Handshakes>,
    asker: Arc<dyn Asker>,
    schedule: Arc<dyn Schedule>,
    options: HandshakeOptions,
    /// Where client certificates are, and what opens them.
    certificates: Option<(Arc<dyn Store>, Arc<dyn Vault>)>,
    failures: Backoff,
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
            handshakes,
            asker,
            schedule,
            options,
            certificates: None,
            failures: Backoff::new(FAILURE_BACKOFF.0, FAILURE_BACKOFF.1),
        }
    }

    /// The same, showing the client certificates of destinations that have one.
    #[must_use]
    pub fn showing_certificates(mut self, store: Arc<dyn Store>, vault: Arc<dyn Vault>) -> Self {
        self.certificates = Some((store, vault));
        self
    }

    /// Asks until `shutdown`. Questions that are under way then are left: they are asked
    /// again.
    pub async fn run(mut self, shutdown: CancellationToken) {
        loop {
            let step = async {
                let pause = self.tick().await;
                tokio::time::sleep(pause).await;
            };
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                () = step => {}
            }
        }
    }

    /// Asks those that are due, up to a batch of them at once. Returns how long to wait
    /// until the next look.
    pub async fn tick(&mut self) -> Duration {
        let mut questions = match self.handshakes.take_handshakes(self.options.batch).await {
            Ok(questions) => questions,
            Err(error) => {
                tracing::warn!(%error, "handshakes not looked at, will look again");
                return self.failures.failed();
            }
        };
        self.failures.succeeded();
        self.identify(&mut questions).await;
        join_all(questions.iter().map(|one| self.ask(one))).await;
        match u32::try_from(questions.len()).is_ok_and(|asked| asked >= self.options.batch) {
            true => Duration::ZERO,
            false => self.options.every,
        }
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
