//! What a run on a cluster showed, and how it is printed.

use serde::{Deserialize, Serialize};
use server::output::{self, or_dash};

use super::ledger::{Counts, Judged};
use super::timeline::{Answer, Entry, Happening, Timeline};
use crate::run::report::number;
use crate::run::settings::{Limit, Rate};

/// The version of the format.
const FORMAT: u32 = 1;

/// What the run was.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Settings {
    pub(super) url: String,
    pub(super) namespace: String,
    pub(super) rate: Rate,
    pub(super) seconds: u32,
    pub(super) destinations: u32,
    pub(super) limit: Limit,
    pub(super) faults: Vec<String>,
}

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Ended {
    /// Nothing waits any more.
    Drained,
    /// Something did when the patience was over.
    Undrained,
    /// By a signal.
    Interrupted,
}

/// One run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Report {
    pub(super) format: u32,
    pub(super) settings: Settings,
    pub(super) ended: Ended,
    pub(super) counts: Counts,
    pub(super) destinations: Vec<Judged>,
    pub(super) timeline: Vec<Entry>,
    /// Why it does not hold; empty where it does.
    pub(super) troubles: Vec<String>,
}

impl Report {
    pub(super) fn new(
        settings: Settings,
        ended: Ended,
        (counts, destinations): (Counts, Vec<Judged>),
        timeline: &Timeline,
    ) -> Self {
        let mut report = Self {
            format: FORMAT,
            settings,
            ended,
            counts,
            destinations,
            timeline: timeline.entries(),
            troubles: Vec::new(),
        };
        report.troubles = report.found();
        report
    }

    /// Why it does not hold.
    pub(super) fn troubles(&self) -> &[String] {
        &self.troubles
    }

    fn found(&self) -> Vec<String> {
        let mut found = Vec::new();
        let broken = self.destinations.iter().filter(|one| !one.compliant);
        found.extend(broken.map(|one| format!("{} broke its limit", one.name)));
        if self.destinations.len() != self.settings.destinations as usize {
            let judged = self.destinations.len();
            found.push(format!("only {judged} destinations were judged"));
        }
        for (count, what) in [
            (self.counts.lost, "events were lost"),
            (self.counts.dead_letters, "events were given up"),
            (self.counts.refused, "events were refused"),
            (self.counts.unanswered, "events were not answered"),
        ] {
            if count > 0 {
                found.push(format!("{count} {what}"));
            }
        }
        match self.ended {
            Ended::Drained => {}
            Ended::Undrained => found.push(format!(
                "{} events still waited when the patience was over",
                self.counts.pending
            )),
            Ended::Interrupted => found.push("the run was interrupted".to_owned()),
        }
        // A fault that did not happen proves nothing; that a budget refuses one is
        // what it is for.
        let undone = self.timeline.iter().filter(|entry| {
            matches!(
                entry.what,
                Happening::Fault {
                    answer: Answer::NotFound | Answer::Failed,
                    ..
                }
            )
        });
        found.extend(undone.map(|entry| entry.what.words()));
        found
    }

    /// What was tried, and how it ended.
    pub(super) fn heading(&self) -> String {
        let settings = &self.settings;
        let ended = match self.ended {
            Ended::Drained => "drained",
            Ended::Undrained => "not drained when the patience was over",
            Ended::Interrupted => "interrupted",
        };
        format!(
            "{}/s for {} s to {} destinations, limit {}, {} faults in namespace {}; {ended}",
            number(settings.rate.0),
            settings.seconds,
            settings.destinations,
            settings.limit,
            settings.faults.len(),
            settings.namespace,
        )
    }

    /// The verdict in a line.
    pub(super) fn verdict(&self) -> String {
        match self.troubles.is_empty() {
            true => "limits held, and nothing was lost".to_owned(),
            false => format!("it does not hold: {}", self.troubles.join("; ")),
        }
    }

    /// All counts by name.
    pub(super) fn rows(&self) -> [(&'static str, u64); 11] {
        let counts = &self.counts;
        [
            ("offered", counts.offered),
            ("accepted", counts.accepted),
            ("refused", counts.refused),
            ("unanswered", counts.unanswered),
            ("requests made again", counts.repeated),
            ("delivered", counts.delivered),
            ("pending", counts.pending),
            ("dead letters", counts.dead_letters),
            ("lost", counts.lost),
            ("outcome unknown", counts.unknown),
            ("delivered twice", counts.duplicates),
        ]
    }

    /// A row of each rule of each destination.
    pub(super) fn rules(&self) -> Vec<[String; 7]> {
        let rows = self.destinations.iter().flat_map(|one| {
            one.rules.iter().map(|rule| {
                let fullest = rule.largest_sliding.as_ref().map(|window| window.starts);
                [
                    one.name.clone(),
                    rule.rule.clone(),
                    or_dash(rule.bound),
                    or_dash(fullest),
                    rule.early_starts.to_string(),
                    one.share.percent.to_string(),
                    number(one.under_delivery.seconds),
                ]
            })
        });
        rows.collect()
    }

    /// The whole report as text.
    pub(super) fn table(&self) -> String {
        let counts = self
            .rows()
            .map(|(name, count)| vec![name.to_owned(), count.to_string()]);
        let counts = output::table(&["events", ""], counts);
        let rules = self.rules().into_iter().map(Vec::from);
        let rules = output::table(&RULES, rules);
        let timeline = self.timeline.iter().map(|entry| {
            let at = format!("{:.1} s", entry.at_ms as f64 / 1_000.0);
            vec![at, entry.what.words()]
        });
        let timeline = output::table(&["at", "what happened"], timeline);
        let (heading, verdict) = (self.heading(), self.verdict());
        format!("{heading}\n\n{counts}\n\n{rules}\n\n{timeline}\n\n{verdict}")
    }
}

/// The columns of [`Report::rules`].
pub(super) const RULES: [&str; 7] = [
    "destination",
    "rule",
    "limit",
    "fullest window",
    "early starts",
    "share %",
    "under-delivery s",
];

#[cfg(test)]
pub(super) mod tests {
    use super::super::ledger::{Curve, Point, Rule, Share, UnderDelivery, Window};
    use super::*;

    pub(crate) fn report(faults: Vec<Happening>, lost: u64, compliant: bool) -> Report {
        let settings = Settings {
            url: "http://paceline.example/".to_owned(),
            namespace: "paceline".to_owned(),
            rate: Rate(20.0),
            seconds: 60,
            destinations: 1,
            limit: "5/s".parse().unwrap(),
            faults: vec!["10s kill a=b 1".to_owned()],
        };
        let judged = Judged {
            id: "1".to_owned(),
            name: "load <0>".to_owned(),
            limit_in_force: "5/second".to_owned(),
            compliant,
            starts: 10,
            share: Share { percent: 99 },
            rules: vec![Rule {
                rule: "second".to_owned(),
                largest_sliding: Some(Window {
                    starts: 5,
                    ends_at: String::new(),
                }),
                bound: Some(5),
                early_starts: u64::from(!compliant),
            }],
            under_delivery: UnderDelivery {
                seconds: 1.5,
                stretches: Vec::new(),
            },
            curve: Some(Curve {
                step_seconds: 1,
                points: vec![
                    Point {
                        starts_per_second: 4.0,
                        limit_per_second: Some(5.0),
                        backlog: 7,
                    };
                    3
                ],
            }),
        };
        let timeline = Timeline::begin();
        for fault in faults {
            timeline.add(fault);
        }
        let counts = Counts {
            offered: 10,
            accepted: 10,
            lost,
            delivered: 10 - lost,
            ..Counts::default()
        };
        Report::new(settings, Ended::Drained, (counts, vec![judged]), &timeline)
    }

    pub(crate) fn fault(answer: Answer) -> Happening {
        Happening::Fault {
            verb: "evict".to_owned(),
            object: "pod worker-1".to_owned(),
            answer,
            message: None,
        }
    }

    #[test]
    fn it_holds_only_where_all_of_it_does() {
        let holds = |answer, lost, compliant| {
            let report = report(vec![fault(answer)], lost, compliant);
            report.troubles().is_empty()
        };
        assert!(holds(Answer::Done, 0, true));
        assert!(holds(Answer::Refused, 0, true), "a budget's right");
        assert!(!holds(Answer::Done, 1, true), "an event was lost");
        assert!(!holds(Answer::Done, 0, false), "a limit was broken");
        assert!(!holds(Answer::NotFound, 0, true), "nothing was done");
        assert!(!holds(Answer::Failed, 0, true), "nothing was done");
        let mut unjudged = report(Vec::new(), 0, true);
        unjudged.destinations.clear();
        assert!(!unjudged.found().is_empty(), "nobody judged it");
        let mut undrained = report(Vec::new(), 0, true);
        undrained.ended = Ended::Undrained;
        assert!(!undrained.found().is_empty());
    }

    #[test]
    fn the_table_says_what_was_done_and_how_it_ended() {
        let text = report(vec![fault(Answer::Refused)], 1, true).table();
        for part in [
            "20/s for 60 s to 1 destinations, limit 5/s, 1 faults",
            "evict pod worker-1: refused by a disruption budget",
            "it does not hold: 1 events were lost",
            "fullest window",
        ] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
    }
}
