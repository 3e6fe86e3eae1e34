//! The judge, judged: a run in which all is well passes, and each lie that is
//! planted in its logs is found by the rule that is meant to find it.

mod batches;
mod health;
mod news;
mod secrets;
mod tallies;
mod tenants;

use domain::attempt::AttemptState;
use domain::destination::DestinationState;
use domain::limit_group::GroupLimits;
use server::trial::per_second;

use super::*;
use crate::chaos::log::{Grouped, Tried, fingerprint};

const SECOND: i64 = 1_000_000;

/// The store is this far ahead of the shared clock.
const AHEAD: i64 = 1_000 * SECOND;

fn id(number: u64) -> Uuid {
    Uuid::from_u128(number.into())
}

/// A run of four destinations at 2 starts a second, for 30 seconds.
fn sound() -> Evidence {
    let mut evidence = Evidence {
        run: Run {
            seed: 1,
            destinations: (0..4).map(destination).collect(),
            groups: Vec::new(),
            planned: 0,
            storm_us: (0, 30 * SECOND),
        },
        clock: (0..30).map(sample).collect(),
        changes: (0..4).map(change).collect(),
        ..Evidence::default()
    };
    for number in 0..240_u64 {
        let destination = u32::try_from(number % 4).unwrap();
        deliver(&mut evidence, number, destination, time_of(number));
    }
    evidence
}

/// Two at the beginning of each second, for each of four destinations.
fn time_of(number: u64) -> i64 {
    let (second, second_half) = (number / 8, number / 4 % 2);
    i64::try_from(second).unwrap() * SECOND + i64::try_from(second_half).unwrap() * 1_000
}

fn destination(number: u64) -> Tried {
    Tried {
        id: id(9_000 + number),
        name: format!("destination {number}"),
        proxied: false,
        told: None,
        tenant: id(1),
        doomed: false,
    }
}

fn sample(second: i64) -> ClockSample {
    ClockSample {
        before_us: second * SECOND,
        after_us: second * SECOND + 200,
        store_us: second * SECOND + 100 + AHEAD,
    }
}

fn change(number: u64) -> Change {
    Change {
        destination: id(9_000 + number),
        from: AHEAD,
        effective: per_second(2),
        state: DestinationState::Active,
    }
}

/// One event from the client to its receiver, at once.
fn deliver(evidence: &mut Evidence, number: u64, destination: u32, at: i64) {
    let body = fingerprint(&number.to_le_bytes());
    for said in [Said::Posted, Said::Accepted(id(number))] {
        evidence.posts.push(Post {
            number,
            destination,
            body: body.clone(),
            said,
            intruding: false,
        });
    }
    request(evidence, number, destination, 1, at);
}

/// One attempt that succeeds, in all three accounts.
fn request(evidence: &mut Evidence, number: u64, destination: u32, try_number: u32, at: i64) {
    let attempt = i64::try_from(evidence.rows.len()).unwrap() + 1;
    evidence.rows.push(Row {
        attempt,
        event: id(number),
        destination: id(9_000 + u64::from(destination)),
        try_number,
        state: AttemptState::Succeeded,
        dead_letter: false,
        due_at: AHEAD,
        created_at: AHEAD,
        claimed_at: Some(at + AHEAD),
        started_at: Some(at + AHEAD),
        finished_at: Some(at + AHEAD + 3_000),
        was_unknown: false,
        is_replayed: false,
        is_replay: false,
        carried_by: None,
    });
    evidence.sends.push(Send {
        attempt,
        event: id(number),
        try_number,
        at_us: at + 1_000,
        carried: false,
    });
    evidence.receipts.push(Receipt {
        destination,
        event: Some(id(number)),
        try_number: Some(try_number),
        timestamp: Some((at + AHEAD) / SECOND),
        signature: Some("v1,abc".to_owned()),
        verified: true,
        signed_by: Vec::new(),
        body: fingerprint(&number.to_le_bytes()),
        at_us: at + 2_000,
        carried: false,
        nonsense: false,
    });
}

fn step(at_us: i64, by_us: i64) -> Happening {
    Happening {
        at_us,
        what: "clock_step".to_owned(),
        kind: String::new(),
        detail: String::new(),
        by_us,
    }
}

/// The rules that a run breaks after `lie`.
fn broken(lie: impl FnOnce(&mut Evidence)) -> Vec<&'static str> {
    let mut evidence = sound();
    lie(&mut evidence);
    judge(&evidence).broken.into_keys().collect()
}

/// Not over at `destination` any more, nor anywhere in the logs.
fn forget(evidence: &mut Evidence, number: u64) {
    evidence.rows.retain(|row| row.event != id(number));
    evidence.sends.retain(|send| send.event != id(number));
    evidence
        .receipts
        .retain(|one| one.event != Some(id(number)));
}

#[test]
fn a_sound_run_passes() {
    let judgement = judge(&sound());
    assert!(judgement.is_sound(), "{:?}", judgement.findings);
    let figures = judgement.figures;
    assert_eq!(
        (figures.accepted, figures.receipts, figures.extra_receipts),
        (240, 240, 0)
    );
    assert_eq!(figures.fullest_window_percent, 100);
    assert_eq!((figures.signed, figures.verified), (240, 240));
}

#[test]
fn a_lost_event_is_found() {
    assert_eq!(broken(|evidence| forget(evidence, 7)), ["lost"]);
    // Nor is it enough that the ledger has it.
    let failed_and_forgotten = broken(|evidence| {
        evidence.rows[7].state = AttemptState::Failed;
        evidence.sends.remove(7);
        evidence.receipts.remove(7);
    });
    assert_eq!(failed_and_forgotten, ["lost"]);
}

#[test]
fn dead_letters_and_cancelled_events_are_not_lost() {
    let dead = broken(|evidence| {
        evidence.rows[7].state = AttemptState::Failed;
        evidence.rows[7].dead_letter = true;
        evidence.sends.remove(7);
        evidence.receipts.remove(7);
    });
    assert!(dead.is_empty(), "{dead:?}");
    let cancelled = broken(|evidence| {
        evidence.rows[7].state = AttemptState::Cancelled;
        evidence.rows[7].claimed_at = None;
        evidence.rows[7].started_at = None;
        evidence.sends.remove(7);
        evidence.receipts.remove(7);
    });
    assert!(cancelled.is_empty(), "{cancelled:?}");
}

/// Event 7 expired unsent, was replayed, and arrived by its second attempt.
fn replay(evidence: &mut Evidence) {
    evidence.sends.remove(7);
    evidence.receipts.remove(7);
    let expired = &mut evidence.rows[7];
    expired.state = AttemptState::Expired;
    expired.claimed_at = None;
    expired.started_at = None;
    expired.dead_letter = true;
    expired.is_replayed = true;
    request(evidence, 7, 3, 2, 40 * SECOND);
    evidence.rows.last_mut().unwrap().is_replay = true;
}

#[test]
fn a_replay_is_the_only_thing_that_follows_what_expired() {
    let sound = broken(replay);
    assert!(sound.is_empty(), "{sound:?}");
    let by_itself = broken(|evidence| {
        replay(evidence);
        evidence.rows[7].is_replayed = false;
        evidence.rows.last_mut().unwrap().is_replay = false;
    });
    assert_eq!(by_itself, ["extra"]);
}

#[test]
fn a_dead_letter_that_is_not_replayed_exactly_once_is_found() {
    let lost = broken(|evidence| {
        replay(evidence);
        evidence.rows.pop();
        evidence.sends.pop();
        evidence.receipts.pop();
    });
    assert_eq!(lost, ["lost", "replayed"]);
    let unmarked = broken(|evidence| {
        replay(evidence);
        evidence.rows[7].is_replayed = false;
    });
    assert_eq!(unmarked, ["extra", "replayed"]);
    let of_nothing = broken(|evidence| evidence.rows[7].is_replay = true);
    assert_eq!(of_nothing, ["replayed"]);
}

#[test]
fn an_event_whose_answer_was_lost_may_be_missing_or_there() {
    let unanswered = |evidence: &mut Evidence| {
        evidence
            .posts
            .retain(|post| post.said != Said::Accepted(id(7)));
    };
    assert!(broken(unanswered).is_empty());
    let missing = broken(|evidence| {
        unanswered(evidence);
        forget(evidence, 7);
    });
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn a_duplicate_without_a_reason_is_found_and_one_with_a_reason_is_not() {
    // The first request was received and recorded; another one follows.
    let again = |evidence: &mut Evidence| request(evidence, 7, 3, 2, 40 * SECOND);
    assert_eq!(broken(again), ["extra"]);
    let explained = broken(|evidence| {
        again(evidence);
        evidence.rows[7].state = AttemptState::Unknown;
    });
    assert!(explained.is_empty(), "{explained:?}");
    // A late outcome has overwritten the state; the trigger remembers.
    let overwritten = broken(|evidence| {
        again(evidence);
        evidence.rows[7].was_unknown = true;
    });
    assert!(overwritten.is_empty(), "{overwritten:?}");
}

/// The last event is being sent when its worker is stopped for 12 s. It is
/// given up and tried again meanwhile, and arrives after its own retry, in a
/// second that is full without it.
fn stop_in_the_middle(evidence: &mut Evidence) {
    request(evidence, 239, 3, 2, 40 * SECOND);
    evidence.rows[239].was_unknown = true;
    for number in [303, 307] {
        deliver(evidence, number, 3, 41 * SECOND);
    }
    let goes_on = 41 * SECOND + 30_000;
    evidence.receipts[239].at_us = goes_on + 100;
    evidence.happenings.push(Happening {
        what: "stopped".to_owned(),
        kind: "worker".to_owned(),
        ..step(goes_on, goes_on - evidence.sends[239].at_us - 50)
    });
}

#[test]
fn a_request_may_arrive_after_its_own_retry() {
    let stopped = broken(stop_in_the_middle);
    assert!(stopped.is_empty(), "{stopped:?}");
    let by_itself = broken(|evidence| {
        stop_in_the_middle(evidence);
        evidence.happenings.clear();
    });
    assert_eq!(by_itself, ["wire"], "nothing was stopped");
    let stopped = |change: fn(&mut Happening)| {
        broken(|evidence| {
            stop_in_the_middle(evidence);
            change(evidence.happenings.last_mut().unwrap());
        })
    };
    let too_late = stopped(|stop| stop.by_us = SECOND);
    assert_eq!(too_late, ["wire"], "it ought to have been there before");
    let somebody = stopped(|stop| stop.kind = "scheduler".to_owned());
    assert_eq!(somebody, ["wire"], "somebody else");
    let unknown_to_nobody = broken(|evidence| {
        stop_in_the_middle(evidence);
        evidence.rows[239].was_unknown = false;
    });
    assert_eq!(unknown_to_nobody, ["extra"]);
}

#[test]
fn one_attempt_that_arrives_twice_is_found() {
    let twice = broken(|evidence| {
        let mut copy = evidence.receipts[7].clone();
        copy.at_us += 60 * SECOND;
        evidence.receipts.push(copy);
    });
    assert_eq!(twice, ["extra"]);
}

#[test]
fn a_window_over_in_the_ledger_is_found_however_little() {
    // By a microsecond; the wire cannot tell.
    let claimed = broken(|evidence| {
        let row = &mut evidence.rows[8];
        row.claimed_at = row.claimed_at.map(|at| at - 1);
        let timestamp = &mut evidence.receipts[8].timestamp;
        *timestamp = timestamp.map(|at| at - 1);
    });
    assert_eq!(claimed, ["window"]);
    let sent = broken(|evidence| {
        let row = &mut evidence.rows[8];
        row.started_at = row.started_at.map(|at| at - 1);
    });
    assert_eq!(sent, ["window"]);
}

#[test]
fn a_window_over_on_the_wire_is_found() {
    // The ledger says that all is well, and the worker sent three at once.
    let sent = broken(|evidence| {
        for index in [8, 12, 16] {
            evidence.sends[index].at_us = 2 * SECOND;
        }
    });
    assert_eq!(sent, ["wire"]);
    let received = |proxied: bool| {
        broken(|evidence| {
            evidence.run.destinations[0].proxied = proxied;
            for index in [8, 12, 16] {
                evidence.receipts[index].at_us = 2 * SECOND;
            }
        })
    };
    assert_eq!(received(false), ["wire"]);
    let late = broken(|evidence| {
        for index in [8, 12, 16] {
            evidence.receipts[index].at_us = 2 * SECOND;
        }
        evidence.happenings.push(Happening {
            what: "lag".to_owned(),
            ..step(2 * SECOND + 100, SECOND)
        });
    });
    assert!(late.is_empty(), "nobody knows when they arrived");
    assert!(received(true).is_empty(), "a proxy may bunch them");
}

/// All that its members start, whatever each of them may.
#[test]
fn a_window_over_of_a_limit_group_is_found() {
    let group = |per_second| Grouped {
        name: "together".to_owned(),
        limits: GroupLimits {
            per_second: Some(per_second),
            ..GroupLimits::default()
        },
        members: vec![id(9_000), id(9_001)],
    };
    let kept = broken(|evidence| evidence.run.groups.push(group(4)));
    assert!(kept.is_empty(), "two of each");
    let over = broken(|evidence| evidence.run.groups.push(group(3)));
    assert_eq!(over, ["window", "wire"]);
    // Claimed before the second is over, and sent after it.
    let claimed = broken(|evidence| {
        evidence.run.groups.push(group(4));
        evidence.changes[0].effective = per_second(3);
        let claimed_at = &mut evidence.rows[8].claimed_at;
        *claimed_at = claimed_at.map(|at| at - 400_000);
        let timestamp = &mut evidence.receipts[8].timestamp;
        *timestamp = timestamp.map(|at| at - 1);
    });
    assert_eq!(claimed, ["window"]);
    // One of them may do three, and then there are five.
    let received = |proxied: bool| {
        broken(|evidence| {
            evidence.run.groups.push(group(4));
            evidence.run.destinations[1].proxied = proxied;
            evidence.changes[0].effective = per_second(3);
            evidence.receipts[8].at_us = 500_000;
        })
    };
    assert_eq!(received(false), ["wire"]);
    assert!(received(true).is_empty(), "a proxy may bunch them");
}

/// What the classic formula would do: one limit's worth at the end of a period, and one
/// at the beginning of the next. The ledger says that all is well.
#[test]
fn twice_the_limit_within_a_period_is_found() {
    // The four of the first two seconds at the first destination, so far apart.
    let at = |index: usize, apart: i64| if index < 8 { 0 } else { apart };
    let sent = |apart: i64| {
        broken(|evidence| {
            for index in [0, 4, 8, 12] {
                evidence.sends[index].at_us = at(index, apart);
            }
        })
    };
    for apart in [1_000, 600_000, 990_000, SECOND - 1] {
        assert_eq!(sent(apart), ["wire"], "{apart}");
    }
    assert!(sent(SECOND).is_empty());
    let received = |apart: i64, stall: Option<(i64, i64)>| {
        broken(|evidence| {
            for index in [0, 4, 8, 12] {
                evidence.receipts[index].at_us = at(index, apart);
            }
            evidence
                .happenings
                .extend(stall.map(|(until, by)| Happening {
                    what: "lag".to_owned(),
                    ..step(until, by)
                }));
        })
    };
    assert_eq!(received(500_000, None), ["wire"]);
    assert_eq!(received(940_000, None), ["wire"]);
    assert!(received(960_000, None).is_empty(), "the loopback");
    // The receivers stood still for 450 ms before the first two were read.
    let before = (10, 450_010);
    assert!(received(510_000, Some(before)).is_empty());
    assert_eq!(
        received(490_000, Some(before)),
        ["wire"],
        "by more than its length"
    );
    let elsewhere = (15 * SECOND, 450_000);
    assert_eq!(received(510_000, Some(elsewhere)), ["wire"]);
}

/// A worker claims in time, is stopped for longer than it may take to send, and sends as
/// it goes on, in a second that is full without it.
#[test]
fn what_a_worker_had_claimed_before_it_was_stopped_is_its_stops() {
    let stopped = |length: i64, kind: &str| {
        broken(|evidence| {
            let goes_on = 11 * SECOND + 500_000;
            evidence.sends[80].at_us = goes_on + 10;
            evidence.sends[84].at_us = goes_on + 20;
            evidence.happenings.push(Happening {
                what: "stopped".to_owned(),
                kind: kind.to_owned(),
                ..step(goes_on, length)
            });
        })
    };
    assert!(stopped(1_480_000, "worker").is_empty());
    assert_eq!(stopped(1_480_000, "scheduler"), ["wire"]);
    assert_eq!(
        stopped(1_600_000, "worker"),
        ["wire"],
        "claimed after it was"
    );
}

#[test]
fn a_step_of_the_store_excuses_the_wire_by_as_much_and_the_ledger_by_nothing() {
    // Just after 5 s the store's clock is set `by` ahead; what started from 6 s
    // on was sent that much earlier.
    let stepped = |by: i64, sent_earlier: i64| {
        broken(|evidence| {
            let at = 5 * SECOND + 50_000;
            evidence.happenings.push(step(at, by));
            for sample in &mut evidence.clock {
                if sample.before_us > at {
                    sample.store_us += by;
                }
            }
            for (send, receipt) in evidence.sends.iter_mut().zip(&mut evidence.receipts) {
                if send.at_us > 6 * SECOND {
                    send.at_us -= sent_earlier;
                    receipt.at_us -= sent_earlier;
                }
            }
        })
    };
    assert!(stepped(900_000, 0).is_empty());
    assert!(stepped(900_000, 900_000).is_empty());
    assert_eq!(stepped(0, 900_000), ["wire"], "no step, no excuse");
    assert_eq!(
        stepped(-900_000, 900_000),
        ["wire"],
        "a step back excuses nothing"
    );
}

#[test]
fn starts_in_a_pause_and_after_a_cut_are_found() {
    let changed = |limit: u32, state: DestinationState| {
        broken(|evidence| {
            evidence.changes.push(Change {
                from: AHEAD + 10 * SECOND + 1,
                effective: per_second(limit),
                state,
                ..change(0)
            });
        })
    };
    assert_eq!(changed(1, DestinationState::Active), ["window", "wire"]);
    assert_eq!(changed(2, DestinationState::Paused), ["window", "wire"]);
    assert!(changed(3, DestinationState::Active).is_empty());
}

#[test]
fn an_altered_body_id_or_timestamp_is_found() {
    let body = broken(|evidence| evidence.receipts[7].body = fingerprint(b"another"));
    assert_eq!(body, ["altered", "ledger"]);
    // The body of another event is no better.
    let swapped = broken(|evidence| {
        let other = evidence.receipts[8].body.clone();
        evidence.receipts[7].body = other;
    });
    assert_eq!(swapped, ["altered", "ledger"]);
    let timestamp = broken(|evidence| evidence.receipts[7].timestamp = Some(5));
    assert_eq!(timestamp, ["altered"]);
    let id = broken(|evidence| evidence.receipts[7].event = None);
    assert_eq!(id, ["altered", "ledger", "lost"]);
}

#[test]
fn a_success_that_nobody_received_is_found() {
    let unsent = |evidence: &mut Evidence| {
        evidence.sends.remove(7);
        evidence.receipts.remove(7);
    };
    assert_eq!(broken(unsent), ["ledger", "lost"]);
    let not_arrived = broken(|evidence| {
        evidence.receipts.remove(7);
        evidence
            .posts
            .retain(|post| post.said != Said::Accepted(id(7)));
    });
    assert_eq!(not_arrived, ["ledger"]);
}

#[test]
fn a_request_that_the_ledger_does_not_know_is_found() {
    let no_row = broken(|evidence| {
        evidence.rows.remove(7);
    });
    assert_eq!(no_row, ["extra", "ledger"]);
    let not_started = broken(|evidence| {
        evidence.rows[7].state = AttemptState::NotSent;
    });
    assert_eq!(
        not_started,
        ["extra", "ledger"],
        "the ledger says that it was not sent"
    );
    let elsewhere = broken(|evidence| evidence.receipts[7].destination = 2);
    assert!(elsewhere.contains(&"ledger"), "{elsewhere:?}");
    let sent_twice = broken(|evidence| {
        let copy = evidence.sends[7];
        evidence.sends.push(Send {
            at_us: copy.at_us + 20 * SECOND,
            ..copy
        });
    });
    assert!(sent_twice.contains(&"ledger"), "{sent_twice:?}");
}

#[test]
fn an_event_that_nobody_posted_and_one_that_became_two_are_found() {
    // The payload of 7, as another event, in all three accounts.
    let copied = |posts: usize| {
        broken(|evidence| {
            request(evidence, 7_000, 3, 1, 40 * SECOND);
            let body = fingerprint(&7_u64.to_le_bytes());
            let receipt = evidence.receipts.last_mut().unwrap();
            receipt.body.clone_from(&body);
            for _ in 1..posts {
                evidence.posts.push(Post {
                    number: 7,
                    destination: 3,
                    body: body.clone(),
                    said: Said::Posted,
                    intruding: false,
                });
            }
        })
    };
    assert_eq!(copied(1), ["ledger"]);
    assert_eq!(copied(2), ["ledger"], "it had a key");
}

/// One more attempt, at the destination of that row: it waits.
fn another_waits(evidence: &mut Evidence, row: usize) {
    let row = evidence.rows[row].clone();
    evidence.rows.push(Row {
        attempt: 1_000,
        event: id(1_000),
        state: AttemptState::Waiting,
        claimed_at: None,
        started_at: None,
        ..row
    });
}

#[test]
fn an_attempt_without_an_end_is_found() {
    let left = broken(|evidence| another_waits(evidence, 7));
    assert_eq!(left, ["left"]);
}

#[test]
fn a_starved_destination_is_found() {
    // Destination 0 has its second half of events after all others have
    // had theirs, 100 s later, although they were due from the beginning.
    let starved = |due: bool| {
        let mut evidence = sound();
        for number in 240..1_200_u64 {
            let destination = u32::try_from(number % 4).unwrap();
            if destination != 0 {
                deliver(&mut evidence, number, destination, time_of(number));
            }
        }
        deliver(&mut evidence, 5_000, 0, 140 * SECOND);
        if !due {
            let last = evidence.rows.last_mut().unwrap();
            last.due_at = AHEAD + 139 * SECOND;
        }
        judge(&evidence).broken.into_keys().collect::<Vec<_>>()
    };
    assert_eq!(starved(true), ["starved"]);
    assert!(starved(false).is_empty());
}

#[test]
fn a_signature_that_does_not_verify_is_found() {
    let wrong = broken(|evidence| evidence.receipts[7].verified = false);
    assert_eq!(wrong, ["signature"]);
}
