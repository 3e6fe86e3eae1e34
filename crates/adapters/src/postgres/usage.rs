//! What destinations use of their limits and what waits there, all read in one
//! statement: one snapshot, so no permit slips from one list to another. It is as long
//! as the policies of the run need ([`past::Past`]).

mod due;
mod everything;
mod owed;
mod past;
mod starts;
mod statement;

use std::collections::HashMap;
use std::sync::Arc;

use domain::admission::{
    Backlog, Bucket, CoarseStarts, Group, Meter, Newest, Outstanding, Usage, newest_claims,
    newest_starts, next_due, read_ahead,
};
use domain::batch::BatchRules;
use domain::ids::{AttemptId, DestinationId, Epoch, PermitNumber};
use domain::limit::{Count, Limit, Period};
use domain::permit::Permit;
use domain::policy::{Policy, Rate};
use domain::time::Timestamp;
use sqlx::PgConnection;
use uuid::Uuid;

use super::destinations::Found;
use super::failure::Failure;
use super::id_range::IdRange;
use super::limit_group::{self, Groups};
use super::rows::{count, integer, time};
use due::{Due, batched, merged};
use everything::Rest;
use owed::Owed;
use statement::{Asked, Row};

/// Starts of a coarse limit that are in no bucket and yet final: above this
/// many they are folded before anything is admitted.
const MAX_UNFOLDED: usize = 5_000;

/// Above this many they are folded on the side, so that runs stay cheap.
const FOLD_FROM: usize = 200;

/// What to read for one destination.
pub(super) struct Question<'a> {
    pub(super) destination: DestinationId,
    pub(super) policy: &'a Policy,
    /// The cursor of first attempts.
    pub(super) first_after: i64,
    /// The number of the next permit.
    pub(super) number: i64,
    pub(super) meter: Meter,
    pub(super) recount: bool,
    pub(super) held_until: Option<Timestamp>,
    pub(super) deferred_until: Option<Timestamp>,
    pub(super) probing: bool,
    pub(super) batch: Option<BatchRules>,
    pub(super) group: Option<&'a Arc<Group>>,
}

impl<'a> Question<'a> {
    /// For what admits at this destination.
    pub(super) fn of(destination: &'a Found, groups: &'a Groups) -> Self {
        Self {
            destination: destination.id,
            policy: &destination.policy,
            first_after: destination.first_after,
            number: destination.last_permit + 1,
            meter: destination.meter,
            recount: destination.recount,
            held_until: destination.held_until,
            deferred_until: destination.deferred_until,
            probing: destination.probing,
            batch: destination.batch,
            group: limit_group::of(groups, destination),
        }
    }
}

/// What was read for one destination.
pub(super) struct Reading {
    pub(super) usage: Usage,
    pub(super) backlog: Backlog,
    /// Permits that may still start, in slot order.
    pub(super) outstanding: Vec<Permit>,
    /// What waits and is due, in the order to be admitted, as many as
    /// `backlog.due`; where requests are batches, what opens them.
    pub(super) waiting: Vec<Waiting>,
    /// The earliest first attempt that waits for a batch: the cursor stops there.
    pub(super) first_left: Option<AttemptId>,
    /// The earliest first attempt that waits at all, and since when: where
    /// requests are batches, the cursor comes up to it.
    pub(super) first_waiting: Option<(AttemptId, Timestamp)>,
    /// Final starts that are in no bucket, to be folded now.
    pub(super) to_fold: Vec<AttemptId>,
}

/// An attempt that is due.
#[derive(Clone, Copy)]
pub(super) struct Waiting {
    pub(super) attempt: AttemptId,
    /// From when on it has waited; of a first attempt, no earlier than any with
    /// a smaller id.
    pub(super) since: Timestamp,
    /// It is read by the cursor.
    pub(super) first: bool,
}

/// Reads them all. `now` is the store's clock, read before; all that
/// counts or waits is of the days that are `open`.
pub(super) async fn read(
    connection: &mut PgConnection,
    questions: &[Question<'_>],
    (now, open): (Timestamp, IdRange),
) -> Result<HashMap<DestinationId, Reading>, Failure> {
    let scopes: Vec<Scope> = (questions.iter())
        .map(|question| Scope::of(question, now))
        .collect();
    let asked = Asked {
        questions,
        scopes: &scopes,
        now,
        open,
    };
    let rows = asked.rows(connection).await?;
    let mut rows: HashMap<Uuid, Row> = rows.into_iter().map(|row| (row.owed.id, row)).collect();
    let asked = questions.iter().zip(&scopes);
    Ok(asked
        .filter_map(|(question, scope)| {
            let row = rows.remove(&question.destination.0)?;
            Some((question.destination, reading(row, question, scope, now)))
        })
        .collect())
}

/// How far back each list has to go.
struct Scope {
    starts: Most,
    /// Where answers count, instead of starts.
    answers: Most,
    claims: Most,
    ahead: i32,
    /// Permits that one run may give.
    most: u32,
    /// From when on buckets count, by period, where its limit is coarse.
    coarse_since: [Option<i64>; 4],
}

/// The newest starts, so many after then; 0 for none.
struct Most {
    count: i32,
    since: i64,
}

impl Most {
    fn of(newest: Option<Newest>, now: Timestamp) -> Self {
        newest.map_or(Self { count: 0, since: 0 }, |newest| Self {
            count: integer(newest.count),
            since: (now - newest.period).as_micros(),
        })
    }
}

impl Scope {
    fn of(question: &Question<'_>, now: Timestamp) -> Self {
        let (policy, recount) = (question.policy, question.recount);
        let windows: &[Limit] = match &policy.rate {
            Rate::Limited(limited) => &limited.windows,
            Rate::Paused | Rate::Unlimited => &[],
        };
        let since = |limit: &Limit| (now - policy.stretched(*limit)).as_micros();
        let alone = read_ahead(policy);
        let most = question
            .group
            .map_or(alone, |group| Group::read_ahead(&group.limits, alone));
        let ahead = question.batch.map_or(most, |rules| rules.read_ahead(most));
        let coarse = |period: Period| {
            let of_period = |limit: &&Limit| limit.period == period && limit.is_coarse();
            windows.iter().find(of_period).map(since)
        };
        let newest = newest_starts(policy);
        let (starts, answers) = match policy.count {
            Count::Start => (newest, None),
            Count::Response => (None, newest),
        };
        Self {
            starts: Most::of(starts, now),
            answers: Most::of(answers, now),
            claims: Most::of(newest_claims(policy, recount), now),
            ahead: integer(ahead),
            most,
            coarse_since: Period::ALL.map(coarse),
        }
    }

    fn coarse_since(&self) -> Option<i64> {
        self.coarse_since.iter().flatten().min().copied()
    }
}

fn reading(row: Row, question: &Question<'_>, scope: &Scope, now: Timestamp) -> Reading {
    let Row { owed, starts, rest } = row;
    let outstanding = permits(&owed, question.destination);
    let due = match &question.batch {
        Some(rules) => batched(&owed, rules, (question.number, scope), now),
        None => Due::of(merged(&owed, question.number, scope.ahead)),
    };
    let mut expired = (owed.urgent_expired.iter())
        .chain(&owed.first_expired)
        .chain(&owed.due_expired);
    let some_are_too_old = expired.any(|expired| *expired);
    let times = time(owed.next_due).into_iter().chain(due.next_due);
    let finals = rest
        .unfolded_final
        .iter()
        .filter(|is_final| **is_final)
        .count();
    let fold_from = if finals > FOLD_FROM { MAX_UNFOLDED } else { 0 };
    let to_fold: Vec<AttemptId> = (rest.unfolded_ids.iter().zip(&rest.unfolded_final))
        .filter(|(_, is_final)| **is_final)
        .map(|(id, _)| AttemptId(*id))
        .take(fold_from)
        .collect();
    let usage = Usage {
        outstanding: (outstanding.iter())
            .map(|permit| Outstanding {
                not_before: permit.not_before,
                deadline: permit.deadline,
            })
            .collect(),
        in_flight: count(owed.in_flight),
        wakes: owed.wakes,
        starts: timestamps(starts.iter().chain(&rest.answers)),
        claims: timestamps(&rest.claims),
        coarse: coarse_starts(&rest, scope),
        incomplete: finals > MAX_UNFOLDED,
        meter: question.meter,
        recount: question.recount,
        held_until: question.held_until,
        deferred_until: question.deferred_until,
        probing: question.probing,
        group: question.group.cloned(),
    };
    let backlog = Backlog {
        due: u32::try_from(due.waiting.len()).unwrap_or(u32::MAX),
        urgent: u32::try_from(owed.urgent_ids.len()).unwrap_or(u32::MAX),
        next_due: next_due(times, some_are_too_old, now),
    };
    Reading {
        usage,
        backlog,
        outstanding,
        waiting: due.waiting,
        first_left: due.first_left,
        first_waiting: due.first_waiting,
        to_fold,
    }
}

fn timestamps<'a>(micros: impl IntoIterator<Item = &'a i64>) -> Vec<Timestamp> {
    let micros = micros.into_iter().copied();
    micros.map(Timestamp::from_micros).collect()
}

fn permits(row: &Owed, destination: DestinationId) -> Vec<Permit> {
    let columns = (row.permit_attempts.iter())
        .zip(&row.permit_numbers)
        .zip(&row.permit_epochs)
        .zip(row.not_befores.iter().zip(&row.deadlines));
    columns
        .map(
            |(((attempt, number), epoch), (not_before, deadline))| Permit {
                destination,
                attempt: AttemptId(*attempt),
                number: PermitNumber(*number),
                epoch: Epoch(*epoch),
                not_before: Timestamp::from_micros(*not_before),
                deadline: Timestamp::from_micros(*deadline),
            },
        )
        .collect()
}

fn coarse_starts(rest: &Rest, scope: &Scope) -> Vec<CoarseStarts> {
    let mut coarse: Vec<CoarseStarts> = (Period::ALL.into_iter().zip(scope.coarse_since))
        .filter_map(|(period, since)| {
            let since = since?;
            let unfolded = rest.unfolded_starts.iter().filter(|start| **start > since);
            Some(CoarseStarts {
                period,
                buckets: Vec::new(),
                unfolded: unfolded.copied().map(Timestamp::from_micros).collect(),
            })
        })
        .collect();
    let buckets =
        (rest.bucket_periods.iter()).zip(rest.bucket_ends.iter().zip(&rest.bucket_starts));
    for (period, (ends_at, starts)) in buckets {
        let Some(of_period) = coarse.iter_mut().find(|c| c.period.as_str() == period) else {
            continue;
        };
        of_period.buckets.push(Bucket {
            ends_at: Timestamp::from_micros(*ends_at),
            starts: count(*starts),
        });
    }
    coarse
}
