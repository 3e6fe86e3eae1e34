//! Sends of requests that have no answer yet, many in one statement.

use std::sync::Arc;
use std::time::Duration;

use domain::ids::WorkerId;
use domain::permit::Permit;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::ports::{MAX_ROWS, SendReport, Store};

/// Reports sends. Clones share the statement.
#[derive(Clone)]
pub(super) struct Sends {
    reports: mpsc::Sender<(WorkerId, SendReport)>,
}

struct Loop {
    store: Arc<dyn Store>,
    reports: mpsc::Receiver<(WorkerId, SendReport)>,
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
    /// until its outcome is there.
    pub(super) fn report(&self, worker: WorkerId, permit: Permit, sent_after: Duration) {
        let report = SendReport {
            attempt: permit.attempt,
            number: permit.number,
            destination: permit.destination,
            sent_after,
        };
        let taken = self.reports.try_send((worker, report));
        if taken.is_err() {
            metrics::counter!("paceline_send_reports_lost_total").increment(1);
        }
    }
}

impl Loop {
    async fn run(mut self) {
        let mut batch = Vec::new();
        while self.reports.recv_many(&mut batch, MAX_ROWS).await > 0 {
            self.tick(std::mem::take(&mut batch)).await;
        }
    }

    /// One statement for each identity: nearly always one.
    async fn tick(&self, batch: Vec<(WorkerId, SendReport)>) {
        for of_one in batch.chunk_by(|one, other| one.0 == other.0) {
            let Some((worker, _)) = of_one.first() else {
                continue;
            };
            let reports: Vec<SendReport> = of_one.iter().map(|(_, report)| *report).collect();
            if let Err(error) = self.store.report_sends(*worker, &reports).await {
                metrics::counter!("paceline_send_reports_lost_total")
                    .increment(reports.len() as u64);
                tracing::debug!(%error, sends = reports.len(), "sends not reported");
            }
        }
    }
}
