//! One run: what it sets up, what it looks at, and what it hands to the report.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use domain::time::Timestamp;
use engine::ports::Store;
use server::config::Database as Place;
use server::parts::Stored;
use server::trial::Ahead;
use tokio_util::sync::CancellationToken;

use super::arrivals::Arrival;
use super::client::Target;
use super::database::Database;
use super::gathering::{self, Evidence};
use super::growth::Growth;
use super::judging::{self, Received, Sender, Verdict};
use super::loading::Loading;
use super::processes::{Used, Watched, What, look, machine};
use super::progress::Progress;
use super::receiver;
use super::receiving::Receiving;
use super::report::{Ended, Report};
use super::setting_up::{self, ChangeBy, Made};
use super::settings::Settings;
use super::shapes;
use super::system::System;
use crate::chaos::boottime_us;

/// How long requests that have started may be under way to the receiver.
const UNDER_WAY: Duration = Duration::from_secs(3);

/// Arrivals that are kept beyond two for each event.
const SPARE: usize = 100_000;

/// What is wished beside the traffic.
pub(crate) struct Wishes {
    /// What the report calls the system.
    pub(crate) system: String,
    pub(crate) connections: u32,
    pub(crate) ports: u16,
    pub(crate) failing_percent: u32,
    /// How many destinations, the first ones, are slow, and how long they take.
    pub(crate) slow: (u32, u64),
    /// For draining.
    pub(crate) patience: Duration,
    pub(crate) change_by: ChangeBy,
    /// Nothing is started before the load has ended.
    pub(crate) hold: bool,
    /// How long the same rate is sent before anything is measured.
    pub(crate) warm_up_seconds: u32,
    /// Which part of each period is judged at the receiver, in per cent.
    pub(crate) windows: u32,
    /// Deliveries that wait at other destinations.
    pub(crate) waiting: u64,
}

/// Runs, and reports what was so far when `shutdown` comes.
pub(crate) async fn measure(
    system: &mut System,
    settings: &Settings,
    wishes: &Wishes,
    shutdown: &CancellationToken,
) -> anyhow::Result<Report> {
    let mut run = Run::set_up(system, settings, wishes).await?;
    run.warm_up(system, shutdown).await?;
    run.measured = true;
    if wishes.hold {
        setting_up::hold(system, &run.made).await?;
    }
    let (began, began_at) = (run.began().await?, server::edge::now());
    let mut before = run.look_before(system, None).await?;
    let loading = Loading::start(run.target(system), shapes::steps(settings)).await?;
    let mut done = run.load(system, &loading, shutdown).await;
    let ended_us = boottime_us();
    let mut released_us = None;
    if wishes.hold && done.is_ok() {
        // What is measured from here on is the drain.
        before = run.look_before(system, Some(&loading)).await?;
        released_us = Some(before.at_us);
        done = setting_up::release(system, &run.made).await;
    }
    let ended = match done {
        Ok(()) => run.drain(system, &loading, shutdown).await,
        Err(error) => Err(error),
    };
    let after = look(&run.watched(system, Some(&loading)));
    let watched_seconds = (boottime_us() - before.at_us) as f64 / 1_000_000.0;
    let database = match &mut run.database {
        Some(database) => Some(database.done().await?),
        None => None,
    };
    let (began_us, refused) = (
        loading.began_us,
        loading.tally.refused.load(Ordering::Relaxed),
    );
    let loaded = loading.finish().await?;
    for (status, events) in &loaded.refusals {
        run.note(format!("{events} events were refused with {status}"));
    }
    let (ended, after) = (ended?, run.used(&before.used, after));
    let grown = run.growth.ratios();
    let pending = match &run.stored {
        Some(stored) => Some(judging::pending(stored.as_ref(), &run.made.destinations).await?),
        None => None,
    };
    if ended != Ended::Drained {
        // What had started neither waits nor has arrived yet.
        tokio::time::sleep(UNDER_WAY).await;
    }
    let (arrivals, verdict) = run.judge(began).await?;
    Ok(gathering::report(Evidence {
        system: wishes.system.clone(),
        machine: machine(),
        began_at_unix_ms: began_at.as_micros() / 1_000,
        settings: settings.clone(),
        ended,
        load_us: (began_us, ended_us),
        released_us,
        sent: loaded.sent,
        refused,
        arrivals,
        verdict,
        pending,
        used: after,
        grown,
        watched_seconds,
        database,
        notes: run.notes,
    }))
}

/// How things stood when measuring began.
struct Before {
    at_us: i64,
    used: BTreeMap<String, Used>,
}

/// What a run has set up.
pub(super) struct Run<'a> {
    pub(super) settings: &'a Settings,
    pub(super) wishes: &'a Wishes,
    pub(super) receiving: Receiving,
    pub(super) made: Made,
    /// The store to look at, if it is known.
    pub(super) stored: Option<Arc<dyn Stored>>,
    pub(super) database: Option<Database>,
    /// The highest memory of each process so far.
    pub(super) peaks: BTreeMap<String, f64>,
    pub(super) growth: Growth,
    pub(super) progress: Progress,
    /// This is no warming up.
    pub(super) measured: bool,
    /// What is done half-way is done.
    pub(super) changed: bool,
    pub(super) notes: Vec<String>,
}

impl<'a> Run<'a> {
    async fn set_up(
        system: &System,
        settings: &'a Settings,
        wishes: &'a Wishes,
    ) -> anyhow::Result<Self> {
        let events: u64 = shapes::steps(settings)
            .map(|step| u64::from(step.count))
            .sum();
        let receiving = Receiving::start(&receiver::Args {
            ports: wishes.ports,
            capacity: usize::try_from(events)? * 2 + SPARE,
            failing_percent: wishes.failing_percent,
            slow_destinations: if wishes.slow.1 > 0 { wishes.slow.0 } else { 0 },
            slow_ms: wishes.slow.1,
        })
        .await?;
        let made = setting_up::make(system, settings, |number| receiving.url(number)).await?;
        let mut run = Self {
            settings,
            wishes,
            receiving,
            made,
            stored: None,
            database: None,
            peaks: BTreeMap::new(),
            growth: Growth::default(),
            progress: Progress::default(),
            measured: false,
            changed: false,
            notes: Vec::new(),
        };
        run.open(system).await?;
        if wishes.waiting > 0 {
            let url = run.receiving.url(0);
            setting_up::fill(system, wishes.waiting, &url).await?;
        }
        Ok(run)
    }

    /// Opens the store beside those that work on it.
    async fn open(&mut self, system: &System) -> anyhow::Result<()> {
        let Some(store) = &system.store else {
            self.note("no ledger: the database is not known (--ledger-url)".to_owned());
            return Ok(());
        };
        self.stored = Some(server::parts::open_to_read(store).await?);
        if let Place::Postgres(url) = store.place()? {
            let database = Database::open(url.expose()).await?;
            if !database.counts_statements {
                let why = "statements are not counted: Postgres has no pg_stat_statements";
                self.note(why.to_owned());
            }
            self.database = Some(database);
        } else {
            self.note("statements and WAL are counted in Postgres only".to_owned());
        }
        Ok(())
    }

    pub(super) fn note(&mut self, note: String) {
        self.notes.push(note);
    }

    async fn look_before(
        &mut self,
        system: &System,
        loading: Option<&Loading>,
    ) -> anyhow::Result<Before> {
        if let Some(database) = &mut self.database {
            database.begin().await?;
        }
        Ok(Before {
            at_us: boottime_us(),
            used: look(&self.watched(system, loading)),
        })
    }

    /// The store's time.
    async fn began(&self) -> anyhow::Result<Option<Timestamp>> {
        match &self.stored {
            Some(stored) => Ok(Some(stored.fleet().await?.now)),
            None => Ok(None),
        }
    }

    async fn sender(&self, began: Option<Timestamp>) -> anyhow::Result<Option<Sender<'_>>> {
        let (Some(stored), Some(began)) = (&self.stored, began) else {
            return Ok(None);
        };
        let until = stored.fleet().await?.now;
        let store: &dyn Store = stored.as_ref();
        Ok(Some(Sender {
            stored: stored.as_ref(),
            began,
            until,
            ahead: Ahead::measure(store, boottime_us).await?,
        }))
    }

    /// What arrived, and how limits were kept.
    async fn judge(&mut self, began: Option<Timestamp>) -> anyhow::Result<(Vec<Arrival>, Verdict)> {
        let seen = self.receiving.seen().await?;
        if seen.dropped > 0 {
            self.note(format!(
                "{} arrivals were counted and not kept",
                seen.dropped
            ));
        }
        let received = Received {
            arrivals: &seen.arrivals,
            stalls: &seen.stalls,
            window_percent: self.wishes.windows,
        };
        let sender = self.sender(began).await?;
        let destinations = &self.made.destinations;
        let mut verdict = judging::judge(self.settings, destinations, received, sender).await?;
        if self.wishes.hold {
            // What was held was due long before it was let go.
            verdict.lates_us.clear();
        }
        Ok((seen.arrivals, verdict))
    }

    pub(super) fn target(&self, system: &System) -> Target {
        let bearer = |key: &String| format!("Bearer {key}");
        Target {
            addresses: system.addresses.clone(),
            destinations: self.made.destinations.clone(),
            keys: self.made.keys.iter().map(bearer).collect(),
            payload_bytes: self.settings.payload_bytes,
            ingest: self.settings.ingest,
            connections: self.wishes.connections,
        }
    }

    /// Everything whose cost is counted.
    pub(super) fn watched(&self, system: &System, loading: Option<&Loading>) -> Vec<Watched> {
        let receiver = self.receiving.process();
        let receiver = receiver.map(|process| Watched::tree("receiver", process));
        let client = loading.map(|loading| Watched {
            name: "client".to_owned(),
            what: What::Thread(loading.stat.clone()),
        });
        let writers = system.watched.iter().filter_map(Watched::sqlite_writer);
        system
            .watched
            .iter()
            .cloned()
            .chain(writers)
            .chain(receiver)
            .chain(client)
            .collect()
    }

    /// What each process used between two looks, and its peak.
    fn used(
        &mut self,
        before: &BTreeMap<String, Used>,
        after: BTreeMap<String, Used>,
    ) -> BTreeMap<String, Used> {
        let wanted = ["receiver", "client"].into_iter();
        for name in wanted.filter(|name| !after.contains_key(*name)) {
            self.notes
                .push(format!("what the {name} used is not known"));
        }
        for name in ["postgres", "redis", "rabbitmq"] {
            if self.database.is_some() && !after.contains_key(name) {
                self.notes
                    .push(format!("{name} was not found on this machine"));
            }
        }
        let used = |(name, used): (String, Used)| {
            let before = before.get(&name).copied().unwrap_or_default();
            let peak = self.peaks.get(&name).copied().unwrap_or(0.0);
            let used = Used {
                user_seconds: (used.user_seconds - before.user_seconds).max(0.0),
                system_seconds: (used.system_seconds - before.system_seconds).max(0.0),
                resident_mib: peak.max(used.resident_mib),
            };
            (name, used)
        };
        after.into_iter().map(used).collect()
    }
}
