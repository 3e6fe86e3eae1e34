//! Sends of requests that have no answer yet, many in one statement.

use std::sync::{Arc, Weak};
use std::time::Duration;

use domain::ids::WorkerId;
use domain::permit::Permit;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::ports::{MAX_ROWS, SendReport, Store};

/// Reports sends. Clones share the statement.
#[derive(Clone)]
pub(super) struct Sends {
    reports: mpsc::Sender<Report>,
}

struct Report {
    worker: WorkerId,
    sent: SendReport,
    /// Gone when its answer is there: its outcome says the same.
    unanswered: Weak<()>,
}

/// A request that has no answer yet. Dropped when it has.
pub(super) struct Unanswered(#[expect(dead_code, reason = "who lives is counted")] Arc<()>);

struct Loop {
    store: Arc<dyn Store>,
    reports: mpsc::Receiver<Report>,
}

impl Sends {
    /// Starts the loop; it ends when the last clone is dropped. There is room for what all
    /// `places` report in one instant.
    pub(super) fn spawn(tasks: &mut JoinSet<()>, store: Arc<dyn Store>, places: u32) -> Self {
        let (sender, reports) = mpsc::channel(MAX_ROWS.max(places as usize));
        tasks.spawn(Loop { store, reports }.run());
        Self { reports: sender }
    }

    /// Waits for nobody: what finds no room is lost, and is counted at its latest start
    /// until its outcome is there. Reported for as long as the caller keeps what is
    /// returned.
    #[must_use]
    pub(super) fn report(
        &self,
        worker: WorkerId,
        permit: Permit,
        sent_after: Duration,
    ) -> Unanswered {
        let unanswered = Arc::new(());
        let report = Report {
            worker,
            sent: SendReport {
                attempt: permit.attempt,
                number: permit.number,
                destination: permit.destination,
                sent_after,
            },
            unanswered: Arc::downgrade(&unanswered),
        };
        let taken = self.reports.try_send(report);
        if taken.is_err() {
            metrics::counter!("paceline_send_reports_lost_total").increment(1);
        }
        Unanswered(unanswered)
    }
}

impl Loop {
    async fn run(mut self) {
        let mut batch = Vec::new();
        while self.reports.recv_many(&mut batch, MAX_ROWS).await > 0 {
            self.tick(std::mem::take(&mut batch)).await;
        }
    }

    /// One statement for each identity: nearly always one. What was answered while it
    /// waited here is left out: its row is wanted by its outcome.
    async fn tick(&self, batch: Vec<Report>) {
        for of_one in batch.chunk_by(|one, other| one.worker == other.worker) {
            let reports: Vec<SendReport> = (of_one.iter())
                .filter(|report| report.unanswered.strong_count() > 0)
                .map(|report| report.sent)
                .collect();
            let (Some(Report { worker, .. }), false) = (of_one.first(), reports.is_empty()) else {
                continue;
            };
            if let Err(error) = self.store.report_sends(*worker, &reports).await {
                metrics::counter!("paceline_send_reports_lost_total")
                    .increment(reports.len() as u64);
                tracing::debug!(%error, sends = reports.len(), "sends not reported");
            }
        }
    }
}
