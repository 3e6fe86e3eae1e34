//! The judge: what the logs of a run prove.
//!
//! A pure function of the logs. Each rule looks for one kind of lie, counts
//! what it finds and names the first few; a run is sound when no rule finds
//! anything. What has to be true is asked of [`promises`], as the simulation asks
//! it; what is here is how the logs of a run answer. The rules, by name:
//!
//! - `lost`: an event that was accepted reached nobody, and is neither a
//!   visible dead letter nor cancelled by its owner;
//! - `extra`: an attempt that follows one which is not recorded as failed,
//!   unknown or not sent; or more requests than attempts;
//! - `replayed`: a dead letter that was replayed and has not exactly one attempt
//!   of a replay right after it, or an attempt of a replay that follows none;
//! - `window`: a limit was broken in the ledger, by the exact bound;
//! - `wire`: a limit was broken by the workers' first bytes or at the
//!   receivers, by the bound that holds there;
//! - `altered`: a body, id or timestamp that is not what was accepted;
//! - `ledger`: the ledger and the logs of workers and receivers disagree;
//! - `left`: an attempt without an end after all was drained;
//! - `starved`: a destination had due work and was not served for too long
//!   while others were;
//! - `told`: news that did not become exactly one event for each that is told of
//!   them, or that did not arrive; a dead letter or a disabling that is in no news,
//!   or an alert that is raised or ended twice, or is not ended;
//! - `strayed`: an event at a destination that it was not posted for, or of a tenant
//!   whose key posted it; or one of a transaction that was rolled back;
//! - `held`: a start while its destination was held, two probes at a time, or a
//!   destination that never came back and is not disabled;
//! - `smart`: an effective limit above the configured one;
//! - `tallied`: the tally has not counted each start of a destination once, by what
//!   came of it;
//! - `signature`: a request without a signature, whose signature does not verify, or
//!   that is not signed by just the secrets that were in force at its start.

mod agreement;
mod astray;
mod extras;
mod figures;
mod holds;
mod loss;
mod news;
mod replays;
mod secrets;
mod smart;
mod starvation;
mod tallies;
mod timeline;
mod windows;

use std::collections::{BTreeMap, HashMap, HashSet};

use figures::Figures;
use promises::Promise;
use serde::Serialize;
use timeline::Timeline;
use uuid::Uuid;

use super::log::{
    Change, ClockSample, Folder, Happened, Happening, Hold, KnownSecret, News, Note, Post, Receipt,
    Row, Run, Said, SecretNote, Send, SmartLimit, Tallied,
};

/// The most findings of one rule that are described; all are counted.
const DESCRIBED: usize = 10;

/// Every rule, so that a summary can say that nothing was found.
pub(crate) const RULES: [&str; 15] = [
    "lost",
    "extra",
    "replayed",
    "window",
    "wire",
    "altered",
    "ledger",
    "left",
    "starved",
    "told",
    "strayed",
    "held",
    "smart",
    "tallied",
    "signature",
];

/// All logs of a run.
#[derive(Debug, Clone, Default)]
pub(crate) struct Evidence {
    pub(crate) run: Run,
    pub(crate) posts: Vec<Post>,
    pub(crate) sends: Vec<Send>,
    pub(crate) receipts: Vec<Receipt>,
    pub(crate) rows: Vec<Row>,
    pub(crate) changes: Vec<Change>,
    pub(crate) clock: Vec<ClockSample>,
    pub(crate) happenings: Vec<Happening>,
    pub(crate) news: Vec<News>,
    pub(crate) notes: Vec<Note>,
    pub(crate) happened: Vec<Happened>,
    pub(crate) holds: Vec<Hold>,
    pub(crate) smart: Vec<SmartLimit>,
    pub(crate) secrets: Vec<SecretNote>,
    pub(crate) known: Vec<KnownSecret>,
    pub(crate) tallied: Vec<Tallied>,
}

impl Evidence {
    /// Reads it from the files of a run.
    pub(crate) fn read(folder: &Folder) -> anyhow::Result<Self> {
        Ok(Self {
            run: serde_json::from_slice(&std::fs::read(folder.0.join(Folder::RUN))?)?,
            posts: folder.read(Folder::CLIENT)?,
            sends: folder.sends()?,
            receipts: folder.read(Folder::RECEIPTS)?,
            rows: folder.read(Folder::LEDGER)?,
            changes: folder.read(Folder::CHANGES)?,
            clock: folder.read(Folder::CLOCK)?,
            happenings: folder.read(Folder::HAPPENINGS)?,
            news: folder.read(Folder::NEWS)?,
            notes: folder.read(Folder::NOTES)?,
            happened: folder.read(Folder::HAPPENED)?,
            holds: folder.read(Folder::HOLDS)?,
            smart: folder.read(Folder::SMART)?,
            secrets: folder.read(Folder::SECRETS)?,
            known: folder.read(Folder::KNOWN)?,
            tallied: folder.read(Folder::TALLIED)?,
        })
    }
}

/// What was found, and figures.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Judgement {
    /// How many times each rule was broken; absent rules were kept.
    pub(crate) broken: BTreeMap<&'static str, u64>,
    /// The first of each.
    pub(crate) findings: Vec<String>,
    pub(crate) figures: Figures,
}

impl Judgement {
    pub(crate) fn is_sound(&self) -> bool {
        self.broken.is_empty()
    }

    /// Finds what breaks a promise, by the rule that asked for it.
    fn keep(&mut self, rule: &'static str, judged: Promise) {
        if let Err(broken) = judged {
            self.find(rule, || broken.how);
        }
    }

    fn find(&mut self, rule: &'static str, words: impl FnOnce() -> String) {
        let count = self.broken.entry(rule).or_default();
        *count += 1;
        if *count <= DESCRIBED as u64 {
            self.findings.push(format!("{rule}: {}", words()));
        }
    }
}

/// The logs, by what they are about.
struct Case<'a> {
    evidence: &'a Evidence,
    /// Attempts of an event, in the order of their ids.
    rows: HashMap<Uuid, Vec<&'a Row>>,
    /// What arrived, by event.
    receipts: HashMap<Uuid, Vec<&'a Receipt>>,
    /// When workers began to send what, by event and try.
    sends: HashMap<(Uuid, u32), Vec<i64>>,
    /// Accepted events and the posts that they were.
    accepted: HashMap<Uuid, &'a Post>,
    /// Events that news became.
    notes: HashMap<Uuid, &'a Note>,
}

impl<'a> Case<'a> {
    fn new(evidence: &'a Evidence) -> Self {
        let mut case = Self {
            evidence,
            rows: HashMap::new(),
            receipts: HashMap::new(),
            sends: HashMap::new(),
            accepted: HashMap::new(),
            notes: HashMap::new(),
        };
        for row in &evidence.rows {
            case.rows.entry(row.event).or_default().push(row);
        }
        for rows in case.rows.values_mut() {
            rows.sort_unstable_by_key(|row| row.attempt);
        }
        for receipt in &evidence.receipts {
            if let Some(event) = receipt.event {
                case.receipts.entry(event).or_default().push(receipt);
            }
        }
        for send in &evidence.sends {
            let of_try = case.sends.entry((send.event, send.try_number));
            of_try.or_default().push(send.at_us);
        }
        for post in &evidence.posts {
            if let Said::Accepted(event) = post.said {
                case.accepted.insert(event, post);
            }
        }
        // The client's own events at these destinations are no news, though their
        // answer may have been lost.
        let posted: HashSet<&str> = evidence
            .posts
            .iter()
            .map(|post| post.body.as_str())
            .collect();
        let notes = evidence
            .notes
            .iter()
            .filter(|note| !posted.contains(note.body.as_str()));
        case.notes = notes.map(|note| (note.event, note)).collect();
        case
    }

    fn rows(&self, event: Uuid) -> &[&'a Row] {
        self.rows.get(&event).map_or(&[], Vec::as_slice)
    }

    fn receipts(&self, event: Uuid) -> &[&'a Receipt] {
        self.receipts.get(&event).map_or(&[], Vec::as_slice)
    }
}

/// Judges a run by all rules.
pub(crate) fn judge(evidence: &Evidence) -> Judgement {
    let case = Case::new(evidence);
    let timeline = Timeline::new(evidence);
    let mut judgement = Judgement::default();
    judgement.figures.count(&case);
    loss::judge(&case, &mut judgement);
    extras::judge(&case, &mut judgement);
    replays::judge(&case, &mut judgement);
    news::judge(&case, &mut judgement);
    agreement::judge(&case, &mut judgement);
    astray::judge(&case, &mut judgement);
    holds::judge(&case, &timeline, &mut judgement);
    smart::judge(&case, &mut judgement);
    tallies::judge(&case, &mut judgement);
    secrets::judge(&case, &timeline, &mut judgement);
    windows::judge(&case, &timeline, &mut judgement);
    starvation::judge(&case, &mut judgement);
    judgement
}

#[cfg(test)]
mod planted;
