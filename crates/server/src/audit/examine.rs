//! Examines one destination's ledger as it is read, page by page: in memory that
//! does not grow with it.

use std::time::Duration;

use domain::compliance::{
    Dues, Evidence, InForce, Judge, Noted, Start, Stretch, Verdict, reaches_back, under_delivery,
};
use domain::ids::AttemptId;
use domain::series::{Curve, MAX_SLOTS, Passage, Series, Slot};
use domain::smart::Effective;
use domain::time::Timestamp;
use engine::ports::{LedgerRow, LimitHistory, SmartChange};

use super::Span;
use super::report::{CurveReport, PointReport};
use crate::api::text;

/// What has been read so far.
pub struct Examination {
    span: Span,
    history: Vec<InForce>,
    points: usize,
    judge: Judge,
    /// What started before the span, in order.
    before: Vec<Timestamp>,
    /// What had not started when it was read, in order: it may start meanwhile.
    waiting: Vec<AttemptId>,
    /// From the first row on: a span may begin long before its ledger.
    curves: Option<Curves>,
}

/// So many that wait are known again when they have started: 16 MB. The oldest
/// are, and they start first.
const MAX_KNOWN: usize = 2_000_000;

struct Curves {
    dues: Dues,
    /// What under-delivery is judged by.
    judged: Series,
    /// What is shown.
    shown: Option<Series>,
}

/// What a whole ledger shows.
pub struct Examined {
    span: Span,
    history: Vec<InForce>,
    pub verdict: Verdict,
    pub allowed: u64,
    judged: Option<Curve>,
    shown: Option<Curve>,
}

impl Examination {
    /// Of a destination with this history; `points` of its curve are shown, none
    /// for 0.
    #[must_use]
    pub fn new(history: &[LimitHistory], span: Span, points: usize) -> Self {
        let history: Vec<InForce> = (history.iter())
            .map(|entry| InForce::new(entry.in_force_from, &entry.effective, entry.state))
            .collect();
        Self {
            judge: Judge::of_sends(&history),
            span,
            history,
            points,
            before: Vec::new(),
            waiting: Vec::new(),
            curves: None,
        }
    }

    /// How far before the span its starts still count.
    #[must_use]
    pub fn reaches_back(&self) -> Duration {
        reaches_back(&self.history, (self.span.since, self.span.until))
    }

    /// What started before the span, in order; before all rows of it.
    pub fn add_before(&mut self, starts: impl IntoIterator<Item = Start>) {
        for start in starts {
            self.judge.before(start);
            self.before.push(start.0);
        }
    }

    /// Rows as the catalog returns them: what started in the span, in order, and
    /// what waits.
    pub fn add(&mut self, rows: &[LedgerRow]) {
        for row in rows {
            match row.started_at {
                Some(started_at) => self.judge.push((started_at, row.attempt)),
                None if self.waiting.len() < MAX_KNOWN => self.waiting.push(row.attempt),
                None => {}
            }
            self.pass(&row.passage());
        }
    }

    /// Rows that started after the span; whether any was due in it. They waited
    /// at its end.
    pub fn add_later(&mut self, rows: &[LedgerRow]) -> bool {
        let until = self.span.until;
        let mut found = false;
        for row in rows.iter().filter(|row| row.due_at < until) {
            found = true;
            // It waited when it was read, and was counted then.
            if self.waiting.binary_search(&row.attempt).is_ok() {
                continue;
            }
            self.pass(&Passage {
                started_at: None,
                finished_at: None,
                ..row.passage()
            });
        }
        found
    }

    fn pass(&mut self, passage: &Passage) {
        let (span, points) = (self.span, self.points);
        let curves = self.curves.get_or_insert_with(|| {
            let first = passage.started_at.unwrap_or(passage.due_at);
            let whole = first
                .as_micros()
                .div_euclid(1_000_000)
                .saturating_mul(1_000_000);
            let from = span.since.max(Timestamp::from_micros(whole));
            Curves::new(
                Span {
                    since: from,
                    ..span
                },
                points,
            )
        });
        curves.dues.add(passage.due_at);
        curves.judged.add(passage);
        if let Some(shown) = &mut curves.shown {
            shown.add(passage);
        }
    }

    /// After the last row.
    #[must_use]
    pub fn finish(self) -> Examined {
        let (dues, judged, shown) = match self.curves {
            Some(mut curves) => {
                self.before.iter().for_each(|at| curves.dues.before(*at));
                (Some(curves.dues), Some(curves.judged), curves.shown)
            }
            None => (None, None, None),
        };
        let span = (self.span.since, self.span.until);
        Examined {
            allowed: dues.map_or(0, |dues| dues.ideal_starts(&self.history, span)),
            verdict: self.judge.finish(),
            span: self.span,
            history: self.history,
            judged: judged.map(Series::finish),
            shown: shown.map(Series::finish),
        }
    }
}

impl Curves {
    fn new(span: Span, points: usize) -> Self {
        let series = |most| Series::new(span.since, span.until, most);
        Self {
            dues: Dues::new(span.until.since(span.since)),
            judged: series(MAX_SLOTS),
            shown: (points > 0).then(|| series(points)),
        }
    }
}

impl Examined {
    /// Where it got less than its limit allowed, and why.
    #[must_use]
    pub fn stretches(&self, smart: &[SmartChange], noted: &[Noted]) -> Vec<Stretch> {
        let smart: Vec<(Timestamp, Effective)> = (smart.iter())
            .map(|change| (change.in_force_from, change.effective))
            .collect();
        let evidence = Evidence {
            history: &self.history,
            smart: &smart,
            noted,
        };
        let judged = self.judged.as_ref();
        judged.map_or_else(Vec::new, |curve| under_delivery(curve, &evidence))
    }

    /// What is shown, point by point.
    #[must_use]
    pub fn curve(&self) -> Option<CurveReport> {
        let curve = self.shown.as_ref()?;
        let slots = curve.slots.iter().enumerate();
        Some(CurveReport {
            step_seconds: curve.step.as_secs(),
            points: slots
                .map(|(number, slot)| self.point(curve, curve.begins_at(number), slot))
                .collect(),
        })
    }

    fn point(&self, curve: &Curve, at: Timestamp, slot: &Slot) -> PointReport {
        // The last one may be cut short. What starts at once at its beginning is
        // still the start of a second.
        let ends = (at + curve.step).min(self.span.until);
        let seconds = ends.since(at).as_secs_f64().max(1.0);
        let length = Duration::from_secs_f64(seconds);
        // The largest of those that were in force in it.
        let until = self
            .history
            .partition_point(|entry| entry.from < ends)
            .max(1);
        let since = self
            .history
            .partition_point(|entry| entry.from <= at)
            .max(1)
            - 1;
        let in_force = self.history.get(since..until).unwrap_or_default();
        let most = in_force.iter().map(|entry| entry.policy.most_in(length));
        let most = most.collect::<Option<Vec<f64>>>();
        let limit = most.and_then(|most| most.into_iter().reduce(f64::max));
        let limit = limit.map(|most| most / seconds);
        let latency = |part| {
            slot.latencies
                .quantile(part)
                .map(|one| rounded(one.as_secs_f64()))
        };
        PointReport {
            at: text::time(at),
            starts_per_second: rounded(slot.starts as f64 / seconds),
            limit_per_second: limit.map(rounded),
            due: slot.due,
            backlog: slot.backlog,
            refused: slot.refused,
            latency_p50_seconds: latency(0.5),
            latency_p99_seconds: latency(0.99),
        }
    }
}

fn rounded(value: f64) -> f64 {
    (value * 1_000.0).round() / 1_000.0
}

#[cfg(test)]
mod tests {
    use domain::attempt::AttemptState;
    use domain::destination::DestinationState;
    use domain::margin::{self, Margin};
    use domain::policy::LimitSettings;

    use super::super::report::{DestinationReport, Findings};
    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn row(number: i64, due: i64, started: Option<i64>) -> LedgerRow {
        LedgerRow {
            attempt: AttemptId(number),
            due_at: at(due),
            started_at: started.map(at),
            finished_at: started.map(|started| at(started + 40)),
            state: AttemptState::Succeeded,
            status: Some(200),
        }
    }

    fn span() -> Span {
        Span {
            since: at(0),
            until: at(0) + Duration::from_secs(3),
        }
    }

    fn history() -> Vec<LimitHistory> {
        let two = LimitSettings {
            per_second: Some(2),
            ..LimitSettings::default()
        };
        vec![LimitHistory {
            in_force_from: at(0),
            effective: two,
            state: DestinationState::Active,
        }]
    }

    fn report(rows: &[LedgerRow], later: &[LedgerRow]) -> DestinationReport {
        let mut examination = Examination::new(&history(), span(), 3);
        examination.add(rows);
        examination.add_later(later);
        let examined = examination.finish();
        let stretches = examined.stretches(&[], &[]);
        let curve = examined.curve();
        DestinationReport::from(Findings {
            id: "a".to_owned(),
            name: String::new(),
            span: span(),
            judged_since: None,
            history: history(),
            margin: Margin::Measured {
                spread: None,
                cap: margin::MOST,
            },
            verdict: examined.verdict,
            allowed: examined.allowed,
            stretches,
            smart: Vec::new(),
            curve,
        })
    }

    fn started(starts: &[i64]) -> Vec<LedgerRow> {
        let rows = (1..).zip(starts);
        rows.map(|(number, start)| row(number, 0, Some(*start)))
            .collect()
    }

    #[test]
    fn a_kept_limit_is_compliant_and_its_share_is_of_what_was_allowed() {
        let report = report(&started(&[0, 1, 1_000, 1_001, 2_000]), &[]);
        assert!(report.compliant);
        assert_eq!(report.limit_in_force, "2/second");
        assert_eq!(report.limits.len(), 1);
        assert_eq!((report.share.started, report.share.allowed), (5, 5));
        let largest = report.rules[0].largest_sliding.as_ref();
        assert_eq!(largest.map(|window| window.starts), Some(2));
        let curve = report.curve.unwrap();
        let rates = curve
            .points
            .iter()
            .map(|point| (point.starts_per_second, point.backlog));
        assert_eq!(rates.collect::<Vec<_>>(), [(2.0, 3), (2.0, 1), (1.0, 0)]);
    }

    #[test]
    fn a_burst_across_two_calendar_seconds_is_found_with_its_attempts() {
        let report = report(&started(&[900, 950, 1_000, 1_050]), &[]);
        assert!(!report.compliant);
        let second = &report.rules[0];
        let starts = |window: &super::super::report::WindowReport| window.starts;
        assert_eq!(second.largest_aligned.as_ref().map(starts), Some(2));
        assert_eq!(second.largest_sliding.as_ref().map(starts), Some(4));
        assert_eq!(second.violations[0].attempts, [1, 2, 3, 4]);
    }

    /// 60 a minute may all start at once: drawn as one a second they would be over it.
    #[test]
    fn a_kept_limit_is_not_shown_as_broken_whatever_its_period() {
        let mut history = history();
        history[0].effective = LimitSettings {
            per_minute: Some(60),
            ..LimitSettings::default()
        };
        let mut examination = Examination::new(&history, span(), 3);
        examination.add(&started(&[1_000; 60]));
        let points = examination.finish().curve().unwrap().points;
        let drawn: Vec<_> = (points.iter())
            .map(|point| (point.starts_per_second, point.limit_per_second))
            .collect();
        assert!(drawn.contains(&(60.0, Some(60.0))), "{drawn:?}");
        assert!(
            drawn.iter().all(|(_, limit)| *limit == Some(60.0)),
            "{drawn:?}"
        );
    }

    /// A second that the span cuts off is shown as if nothing came in its rest: a
    /// curve above the limit would say that it was broken.
    #[test]
    fn a_second_that_is_cut_short_is_not_shown_above_the_limit() {
        let until = at(2_500);
        let span = Span { until, ..span() };
        let mut examination = Examination::new(&history(), span, 3);
        examination.add(&started(&[0, 1, 1_000, 1_001, 2_000, 2_001]));
        let curve = examination.finish().curve().unwrap();
        let rates = curve.points.iter().map(|point| point.starts_per_second);
        assert_eq!(rates.collect::<Vec<_>>(), [2.0, 2.0, 2.0]);
    }

    #[test]
    fn what_starts_while_it_is_read_is_due_once() {
        let mut examination = Examination::new(&history(), span(), 3);
        examination.add(&[row(1, 0, Some(100)), row(2, 500, None), row(4, 600, None)]);
        // The second starts before the last pass, and the third had been missed.
        let later = [row(2, 500, Some(3_100)), row(3, 500, Some(3_100))];
        assert!(examination.add_later(&later));
        assert!(examination.add_later(&later[..1]), "there may be more");
        let examined = examination.finish();
        assert_eq!(examined.allowed, 4);
        assert_eq!(examined.curve().unwrap().points[2].backlog, 3);
    }

    #[test]
    fn what_started_after_the_span_waited_at_its_end() {
        let later = [row(9, 500, Some(3_100)), row(10, 3_050, Some(3_100))];
        let report = report(&started(&[100, 200]), &later);
        assert_eq!((report.starts, report.share.allowed), (2, 3));
        assert_eq!(report.curve.unwrap().points[2].backlog, 1);
    }
}
