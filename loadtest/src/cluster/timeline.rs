//! What happened to the cluster, in order.

use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

/// The most entries that are kept.
const MAX_ENTRIES: usize = 10_000;

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Entry {
    /// Since the run began.
    pub(super) at_ms: u64,
    #[serde(flatten)]
    pub(super) what: Happening,
}

/// What it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub(super) enum Happening {
    /// We did something, and were answered.
    Fault {
        verb: String,
        object: String,
        answer: Answer,
        /// What the API server said, where it did not do it.
        message: Option<String>,
    },
    /// A Deployment is seen in another state.
    Deployment {
        name: String,
        wanted: i32,
        updated: i32,
        ready: i32,
        available: i32,
    },
    /// A HorizontalPodAutoscaler is seen in another state.
    Autoscaler {
        name: String,
        current: i32,
        wanted: i32,
    },
    /// What was watched is gone.
    Gone { object: String },
    /// The API server did not let us watch.
    Unwatched { object: String, message: String },
}

/// What the API server answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Answer {
    Done,
    /// By a disruption budget: 429.
    Refused,
    /// There was no such object, or no pod that matches.
    NotFound,
    Failed,
}

/// Shared by those who write to it.
#[derive(Debug, Clone)]
pub(super) struct Timeline {
    began: Instant,
    entries: Arc<Mutex<Vec<Entry>>>,
}

impl Timeline {
    /// An empty one.
    pub(super) fn begin() -> Self {
        Self {
            began: Instant::now(),
            entries: Arc::default(),
        }
    }

    /// It happened just now. Beyond [`MAX_ENTRIES`] it is not kept.
    pub(super) fn add(&self, what: Happening) {
        let at_ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let mut entries = self.entries.lock().expect("nobody panics with it");
        if entries.len() < MAX_ENTRIES {
            entries.push(Entry { at_ms, what });
        }
    }

    /// All that was kept.
    pub(super) fn entries(&self) -> Vec<Entry> {
        let entries = self.entries.lock().expect("nobody panics with it");
        entries.clone()
    }
}

impl Happening {
    /// In words.
    pub(super) fn words(&self) -> String {
        match self {
            Self::Fault {
                verb,
                object,
                answer,
                message,
            } => {
                let answer = match answer {
                    Answer::Done => "done",
                    Answer::Refused => "refused by a disruption budget",
                    Answer::NotFound => "not found",
                    Answer::Failed => "failed",
                };
                let message = message.as_deref().map(|text| format!(": {text}"));
                format!("{verb} {object}: {answer}{}", message.unwrap_or_default())
            }
            Self::Deployment {
                name,
                wanted,
                updated,
                ready,
                available,
            } => format!(
                "deployment {name}: {wanted} wanted, {updated} updated, {ready} ready, \
                 {available} available"
            ),
            Self::Autoscaler {
                name,
                current,
                wanted,
            } => format!("autoscaler {name}: {current} replicas, {wanted} wanted"),
            Self::Gone { object } => format!("{object} is gone"),
            Self::Unwatched { object, message } => format!("{object} not watched: {message}"),
        }
    }
}
