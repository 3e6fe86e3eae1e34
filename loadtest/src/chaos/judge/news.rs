//! What operators must know: each piece of news became exactly one event for
//! each that is told of it, and arrived; and the news are what happened.
//!
//! Who is told is worked out here anew, from what was registered. A piece of
//! news names its own number, so no two have the same body.

use std::collections::HashMap;

use domain::ids::{DestinationId, TenantId};
use domain::operations::{OperationalEvent, payload};
use domain::time::Timestamp;
use promises::{
    Unsettled, an_alert_is_raised_and_ended_in_turn, every_alert_ends, news_are_told_once,
};
use uuid::Uuid;

use super::loss::is_over;
use super::{Case, Judgement};
use crate::chaos::log::{Happened, News, Telling, Tried, fingerprint};

/// What is raised, and what ends it.
const ALERTS: [(&str, &str); 2] = [
    ("backlog_high", "backlog_normal"),
    ("under_delivery", "under_delivery_ended"),
];

pub(super) fn judge(case: &Case<'_>, judgement: &mut Judgement) {
    judgement.figures.news = case.evidence.news.len() as u64;
    judgement.figures.notes = case.notes.len() as u64;
    judge_notes(case, judgement);
    for happened in &case.evidence.happened {
        judge_counts(case, happened, judgement);
        judge_alerts(case, happened, judgement);
    }
}

/// One event for each that is told, and none besides.
fn judge_notes(case: &Case<'_>, judgement: &mut Judgement) {
    let mut made: HashMap<(Uuid, String), Vec<Uuid>> = HashMap::new();
    for note in case.notes.values() {
        let of_body = made.entry((note.destination, note.body.clone()));
        of_body.or_default().push(note.event);
    }
    let told = Audience::new(&case.evidence.run.destinations);
    for news in &case.evidence.news {
        let unrelayed = every_alert_ends(Unsettled::at_the_end(usize::from(!news.relayed), 0));
        judgement.keep("told", unrelayed.map_err(|broken| broken.of(words(news))));
        let body = fingerprint(body(news).as_bytes());
        for (number, to) in told.of(news) {
            let events = made.remove(&(to, body.clone())).unwrap_or_default();
            let once = news_are_told_once(words(news), (events.len(), 1), false);
            judgement.keep("told", once.map_err(|broken| broken.of(to)));
            let [event] = events[..] else {
                continue;
            };
            let arrived = (case.receipts(event).iter())
                .any(|receipt| receipt.destination == number && receipt.verified);
            if !arrived && !is_over(case.rows(event)) {
                judgement.find("told", || {
                    format!(
                        "{}, event {event}, did not arrive at {to}, signed",
                        words(news)
                    )
                });
            }
        }
    }
    for ((to, _), events) in made {
        judgement.find("told", || {
            format!("events {events:?} for {to} are no news that it is told of")
        });
    }
}

fn words(news: &News) -> String {
    format!(
        "news {}, {} of {}",
        news.id,
        news.event_type,
        news.destination.unwrap_or(news.tenant)
    )
}

fn body(news: &News) -> String {
    payload(&OperationalEvent {
        id: news.id,
        created_at: Timestamp::from_micros(news.created_at),
        event_type: news.event_type.clone(),
        destination: news.destination.map(DestinationId),
        tenant: TenantId(news.tenant),
        details: news.details.clone(),
    })
}

/// Those that are told, by their numbers: in the order of registration.
struct Audience<'a>(Vec<(u32, &'a Tried, &'a Telling)>);

impl<'a> Audience<'a> {
    fn new(destinations: &'a [Tried]) -> Self {
        let told = (0..).zip(destinations);
        Self(
            told.filter_map(|(number, one)| Some((number, one, one.told.as_ref()?)))
                .collect(),
        )
    }

    /// Of its tenant's and of the installation's.
    fn of(&self, news: &News) -> impl Iterator<Item = (u32, Uuid)> {
        let place = |number: u32, telling: &Telling| (!telling.installation, number);
        let about = self
            .0
            .iter()
            .find(|(_, one, _)| Some(one.id) == news.destination);
        let about = about.map(|(number, _, telling)| place(*number, telling));
        self.0
            .iter()
            .filter(move |(number, one, telling)| {
                let is_theirs = telling.installation || one.tenant == news.tenant;
                // To those before it alone, if it is one of them itself.
                is_theirs
                    && about.is_none_or(|about| place(*number, telling) < about)
                    && (telling.event_types.is_empty()
                        || telling.event_types.contains(&news.event_type))
            })
            .map(|(number, one, _)| (*number, one.id))
    }
}

fn of<'a>(case: &'a Case<'_>, happened: &Happened) -> impl Iterator<Item = &'a News> {
    let destination = Some(happened.destination);
    let news = case.evidence.news.iter();
    news.filter(move |news| news.destination == destination)
}

/// Each dead letter was counted once, and each disabling told of once. Of one
/// that was deleted, nobody is told what happened last.
fn judge_counts(case: &Case<'_>, happened: &Happened, judgement: &mut Judgement) {
    if happened.is_deleted {
        return;
    }
    let of_type = |wanted: &'static str| of(case, happened).filter(move |n| n.event_type == wanted);
    let counted: u64 = of_type("dead_letters").map(count).sum();
    if counted + happened.died_untold != happened.died {
        judgement.find("told", || {
            format!(
                "{}: {} dead letters, of which {counted} were told and {} are to be told",
                happened.destination, happened.died, happened.died_untold
            )
        });
    }
    let disabled = of_type("destination_disabled").count() as u64;
    if disabled != happened.disabled {
        judgement.find("told", || {
            format!(
                "{} was disabled {} times, and {disabled} times in the news",
                happened.destination, happened.disabled
            )
        });
    }
}

fn count(news: &News) -> u64 {
    let details: serde_json::Value = serde_json::from_str(&news.details).unwrap_or_default();
    details["count"].as_u64().unwrap_or(0)
}

/// Raised, ended, raised again; and ended when all is well.
fn judge_alerts(case: &Case<'_>, happened: &Happened, judgement: &mut Judgement) {
    for (raised, ended) in ALERTS {
        let raises = of(case, happened).filter_map(|news| {
            let is = |word: &str| news.event_type == word;
            (is(raised) || is(ended)).then(|| is(raised))
        });
        let raises: Vec<bool> = raises.collect();
        let alert = (happened.destination, raised);
        judgement.keep("told", an_alert_is_raised_and_ended_in_turn(alert, &raises));
        let stands = raises.last() == Some(&true) && !happened.is_deleted;
        let ends = every_alert_ends(Unsettled::at_the_end(0, usize::from(stands)));
        let ends = ends.map_err(|broken| broken.of(format_args!("{alert:?}")));
        judgement.keep("told", ends);
    }
}
