//! The judge: what the logs of a run prove.
//!
//! A pure function of the logs. Each rule looks for one kind of lie, counts
//! what it finds and names the first few; a run is sound when no rule finds
//! anything. The rules, by name:
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
//! - `signature`: a request without a signature, or whose signature does not
//!   verify.

mod agreement;
mod extras;
mod loss;
mod replays;
mod starvation;
mod timeline;
mod windows;

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;
use uuid::Uuid;

use super::log::{Change, ClockSample, Folder, Happening, Post, Receipt, Row, Run, Said, Send};

/// The most findings of one rule that are described; all are counted.
const DESCRIBED: usize = 10;

/// Every rule, so that a summary can say that nothing was found.
pub(crate) const RULES: [&str; 10] = [
    "lost",
    "extra",
    "replayed",
    "window",
    "wire",
    "altered",
    "ledger",
    "left",
    "starved",
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

/// What a run amounted to.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Figures {
    /// Events that the client was answered 202 for.
    pub(crate) accepted: u64,
    /// Posts without an answer, or that were answered 503.
    pub(crate) in_doubt: u64,
    /// Requests that arrived.
    pub(crate) receipts: u64,
    /// Requests beyond one per event.
    pub(crate) extra_receipts: u64,
    /// Attempts by their state at the end.
    pub(crate) attempts: BTreeMap<String, u64>,
    /// Attempts that were ever `unknown`.
    pub(crate) were_unknown: u64,
    pub(crate) dead_letters: u64,
    /// Attempts that replays have made.
    pub(crate) replayed: u64,
    /// The fullest share of a one-second limit in any second of the ledger.
    pub(crate) fullest_window_percent: u64,
    /// Requests at destinations without a proxy that arrived while this
    /// process was not itself late: by these receivers' windows were judged.
    pub(crate) timely_receipts_percent: usize,
    /// The longest that a destination waited while others were served.
    pub(crate) longest_wait_seconds: u64,
    /// Requests that carried a signature.
    pub(crate) signed: u64,
    /// Those whose signature verified.
    pub(crate) verified: u64,
}

impl Judgement {
    pub(crate) fn is_sound(&self) -> bool {
        self.broken.is_empty()
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
}

impl<'a> Case<'a> {
    fn new(evidence: &'a Evidence) -> Self {
        let mut case = Self {
            evidence,
            rows: HashMap::new(),
            receipts: HashMap::new(),
            sends: HashMap::new(),
            accepted: HashMap::new(),
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
    let mut judgement = Judgement::default();
    count(&case, &mut judgement.figures);
    loss::judge(&case, &mut judgement);
    extras::judge(&case, &mut judgement);
    replays::judge(&case, &mut judgement);
    agreement::judge(&case, &mut judgement);
    windows::judge(&case, &mut judgement);
    starvation::judge(&case, &mut judgement);
    judgement
}

fn count(case: &Case<'_>, figures: &mut Figures) {
    let evidence = case.evidence;
    figures.accepted = case.accepted.len() as u64;
    let posts = evidence.posts.iter();
    let answered = posts
        .clone()
        .filter(|post| post.said != Said::Posted)
        .count();
    figures.in_doubt = (posts.len() - 2 * answered) as u64;
    figures.receipts = evidence.receipts.len() as u64;
    figures.extra_receipts = figures.receipts.saturating_sub(case.receipts.len() as u64);
    for row in &evidence.rows {
        *figures
            .attempts
            .entry(row.state.as_str().to_owned())
            .or_default() += 1;
        figures.were_unknown += u64::from(row.was_unknown);
        figures.dead_letters += u64::from(row.dead_letter);
        figures.replayed += u64::from(row.is_replay);
    }
}

#[cfg(test)]
mod planted;
