//! Batches: what opens one, how large it is, and what is made of it.

use domain::batch::{
    AfterBatch, BatchRules, Item, Leader, Line, Lines, Openings, Room, Said, Waiting,
    after_failure, answers, body, half, openings,
};
use domain::ids::EventId;
use domain::retry::RetrySettings;
use domain::time::Timestamp;
use domain::turns::{Lane, Lanes};
use proptest::prelude::*;
use std::time::Duration;
use uuid::Uuid;

const NOW: Timestamp = Timestamp::from_millis(1_000_000);

fn waiting(limits: bool) -> impl Strategy<Value = Waiting> {
    let limit = prop::option::of(1..6_u32);
    (0..3_000_u64, 0..60_u32, limit).prop_map(move |(ago, bytes, limit)| Waiting {
        since: NOW - Duration::from_millis(ago),
        bytes,
        limit: limit.filter(|_| limits),
    })
}

fn line(limits: bool, most: usize) -> impl Strategy<Value = Vec<Waiting>> {
    prop::collection::vec(waiting(limits), 0..most).prop_map(|mut line| {
        line.sort_by_key(|one| one.since);
        line
    })
}

fn rules() -> impl Strategy<Value = BatchRules> {
    (1..8_u32, 1..120_u32, 0..2_000_u64).prop_map(|(max_events, max_bytes, wait)| BatchRules {
        max_events,
        max_bytes,
        max_wait: Duration::from_millis(wait),
    })
}

fn lane() -> impl Strategy<Value = Lane> {
    prop::sample::select(vec![Lane::Urgent, Lane::First, Lane::Other])
}

fn lines() -> impl Strategy<Value = Lines> {
    let promised = prop::collection::vec((lane(), waiting(true)), 0..3);
    let lines = (line(false, 20), line(false, 40), line(true, 40), promised);
    lines.prop_map(|(urgent, firsts, others, promised)| Lines {
        waiting: Lanes {
            urgent,
            firsts,
            others,
        },
        promised: (promised.into_iter())
            .map(|(lane, one)| {
                let limit = one.limit.filter(|_| lane == Lane::Other);
                (lane, Waiting { limit, ..one })
            })
            .collect(),
        cut: false,
    })
}

/// What claims take, one leader after the other, slowly and by the words of the
/// port: the places of each batch in the lists, the leader's first.
fn claimed(rules: &BatchRules, lines: &Lines, leaders: &[Leader]) -> Vec<Vec<(Lane, usize)>> {
    let keys = leaders.iter().map(|leader| (leader.lane, leader.place));
    let mut gone: Vec<(Lane, usize)> = Vec::new();
    let of = |(lane, place): (Lane, usize)| lines.waiting.of(lane)[place];
    let promised = lines.promised.iter().map(|(lane, one)| (None, *lane, *one));
    let led = keys.map(|key| (Some(key), key.0, of(key)));
    let mut batches = Vec::new();
    for (key, lane, leader) in promised.chain(led).collect::<Vec<_>>() {
        let mut room = Room::beside(rules, leader.limit, leader.bytes);
        gone.extend(key);
        let mut batch: Vec<_> = key.into_iter().collect();
        for line in Line::of(lane, leader.limit).into_iter().flatten() {
            let class = match line {
                Line::Class(limit) => Some(limit),
                Line::Urgent | Line::Firsts | Line::Due => None,
            };
            for (place, one) in lines.waiting.of(line.lane()).iter().enumerate() {
                let key = (line.lane(), place);
                let free = one.limit == class && !gone.contains(&key);
                if free && room.events() > 0 {
                    if !room.take(one.bytes) {
                        break;
                    }
                    gone.push(key);
                    batch.push(key);
                }
            }
        }
        if key.is_some() {
            batches.push(batch);
        }
    }
    batches
}

fn decided(rules: &BatchRules, lines: &Lines, number: i64, most: u32) -> Openings {
    openings(rules, lines, (number, most), NOW)
}

proptest! {
    /// No batch is larger than allowed, but for one event that is alone; and
    /// what waits is in one batch at most.
    #[test]
    fn batches_keep_to_their_size(rules in rules(), lines in lines(), number in 0..9_i64) {
        let openings = decided(&rules, &lines, number, 1_000);
        let batches = claimed(&rules, &lines, &openings.leaders);
        let mut seen = Vec::new();
        for batch in batches {
            let of = |(lane, place): &(Lane, usize)| lines.waiting.of(*lane)[*place];
            let bytes: u32 = batch.iter().map(|key| of(key).bytes).sum();
            let limit = of(&batch[0]).limit.unwrap_or(rules.max_events);
            prop_assert!(batch.len() <= rules.max_events.min(limit) as usize);
            prop_assert!(batch.len() == 1 || bytes <= rules.max_bytes);
            let urgent = batch.iter().filter(|(lane, _)| *lane == Lane::Urgent).count();
            prop_assert!(urgent == 0 || urgent == batch.len(), "what is urgent goes alone");
            for key in batch {
                prop_assert!(!seen.contains(&key));
                seen.push(key);
            }
        }
    }

    /// With room for all, whoever is left is a first attempt that has not waited
    /// for long enough, and is told when it has; or it was promised.
    #[test]
    fn nobody_waits_for_longer_than_allowed(rules in rules(), lines in lines(), number in 0..9_i64) {
        let lines = Lines { promised: Vec::new(), ..lines };
        let openings = decided(&rules, &lines, number, 1_000);
        let batches = claimed(&rules, &lines, &openings.leaders);
        let taken = |key| batches.iter().any(|batch| batch.contains(&key));
        for lane in [Lane::Urgent, Lane::Other] {
            for place in 0..lines.waiting.of(lane).len() {
                prop_assert!(taken((lane, place)), "{:?} goes at once", lane);
            }
        }
        let firsts = &lines.waiting.firsts;
        let left = (0..firsts.len()).filter(|place| !taken((Lane::First, *place)));
        let left: Vec<_> = left.map(|place| firsts[place]).collect();
        for one in &left {
            prop_assert!(NOW.since(one.since) < rules.max_wait);
        }
        prop_assert!(left.len() < rules.max_events as usize, "a full batch waits");
        let next = left.first().map(|one| one.since + rules.max_wait);
        prop_assert_eq!(openings.next_due, next);
    }

    /// Fewer permits than batches: the same batches, cut off.
    #[test]
    fn fewer_permits_open_the_first_of_them(
        rules in rules(),
        lines in lines(),
        number in 0..9_i64,
        most in 0..10_u32,
    ) {
        let all = decided(&rules, &lines, number, 1_000).leaders;
        let some = decided(&rules, &lines, number, most).leaders;
        let expected = &all[..all.len().min(most as usize)];
        prop_assert_eq!(some.as_slice(), expected);
    }

    /// Splitting ends: only one that is alone is given up, after nine rounds at
    /// most.
    #[test]
    fn a_batch_is_split_until_each_is_alone(
        size in 1..=500_u32,
        tries in 1..20_u32,
        status in prop::option::of(300..=599_u16),
        jitter in 0.0..=1.0_f64,
    ) {
        let policy = RetrySettings::default();
        let mut left = size;
        for round in 0.. {
            match after_failure(&policy, tries, status, jitter, left) {
                AfterBatch::RetryAfter(_) => {
                    let may_blame = !matches!(status, None | Some(429 | 503));
                    prop_assert!(tries == 1 || left == 1 || !may_blame);
                    break;
                }
                AfterBatch::RetryHalved { limit, .. } => {
                    prop_assert!(tries > 1 && limit < left && limit == half(left));
                    left = limit;
                }
                AfterBatch::DeadLetter(_) => {
                    prop_assert_eq!(left, 1);
                    break;
                }
                AfterBatch::Split { limit, .. } => {
                    prop_assert!(limit < left && limit >= 1);
                    prop_assert!(limit == 1 || limit == half(left));
                    left = limit;
                }
            }
            prop_assert!(round < 9);
        }
    }

    /// Whatever the payloads are, the body is JSON and has each of them whole.
    #[test]
    fn a_payload_stays_in_its_place(
        payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..6),
        json in prop::collection::vec("\\PC{0,20}", 0..3),
        content_type in prop::sample::select(vec!["application/json", "text/plain", "a/b+JSON; x"]),
    ) {
        let quoted = json.iter().map(|text| serde_json::to_vec(text).unwrap());
        let payloads: Vec<Vec<u8>> = payloads.into_iter().chain(quoted).collect();
        let item = |payload| Item {
            event: EventId(Uuid::from_u128(7)),
            try_number: 3,
            event_type: Some("a\"b"),
            accepted_at: NOW,
            content_type,
            payload,
        };
        let body = body(payloads.iter().map(|payload| item(payload)));
        let parsed: serde_json::Value = serde_json::from_slice(&body).unwrap();
        let events = parsed.as_array().unwrap();
        prop_assert_eq!(events.len(), payloads.len());
        for (event, payload) in events.iter().zip(&payloads) {
            prop_assert_eq!(&event["type"], "a\"b");
            prop_assert_eq!(&event["try"], 3);
            let whole = match event.get("data") {
                Some(data) => {
                    let sent: serde_json::Value = serde_json::from_slice(payload).unwrap();
                    *data == sent
                }
                None => {
                    use base64::Engine as _;
                    let base64 = base64::engine::general_purpose::STANDARD;
                    base64.decode(event["data_base64"].as_str().unwrap()).unwrap() == *payload
                }
            };
            prop_assert!(whole);
        }
    }

    /// Never a panic, and never an answer for an event that was not sent.
    #[test]
    fn whatever_a_receiver_says_is_an_answer_or_malformed(
        said in prop::collection::vec(any::<u8>(), 0..200),
        statuses in prop::collection::vec((0..4_u128, any::<u16>()), 0..6),
    ) {
        let events: Vec<EventId> = (0..3).map(|id| EventId(Uuid::from_u128(id))).collect();
        for cut in [false, true] {
            let _ = answers(Said { body: &said, cut }, &events);
        }
        let results: Vec<_> = (statuses.iter())
            .map(|(id, status)| serde_json::json!({"id": Uuid::from_u128(*id), "status": status}))
            .collect();
        let body = serde_json::json!({ "results": results }).to_string();
        let said = Said { body: body.as_bytes(), cut: false };
        let said = answers(said, &events);
        let sound = statuses.iter().all(|(_, status)| (100..=599).contains(status));
        prop_assert_eq!(said.is_ok(), sound);
        for (place, answer) in said.unwrap_or_default().into_iter().enumerate() {
            let mut of = statuses.iter().filter(|(id, _)| *id == place as u128);
            prop_assert_eq!(answer.is_some(), of.clone().next().is_some());
            // One failure among several counts.
            let failed = of.any(|(_, status)| !(200..300).contains(status));
            prop_assert_eq!(answer.is_some_and(|answer| !answer.is_success()), failed);
        }
    }

    /// Cut anywhere, a body says of each event what it said before, or nothing.
    #[test]
    fn what_was_said_before_the_cut_counts(
        statuses in prop::collection::vec(100..=599_u16, 1..6),
        kept in 0.0..1.0_f64,
    ) {
        let events: Vec<EventId> = (0..statuses.len() as u128)
            .map(|id| EventId(Uuid::from_u128(id)))
            .collect();
        let results: Vec<_> = (events.iter().zip(&statuses))
            .map(|(id, status)| serde_json::json!({"id": id.to_string(), "status": status}))
            .collect();
        let body = serde_json::json!({ "results": results }).to_string();
        let whole = answers(Said { body: body.as_bytes(), cut: false }, &events).unwrap();
        let body = &body.as_bytes()[..(body.len() as f64 * kept) as usize];
        let uncut = answers(Said { body, cut: false }, &events);
        prop_assert!(uncut.is_err());
        let before = body.windows(2).filter(|end| end == b"},").count();
        match answers(Said { body, cut: true }, &events) {
            Ok(said) => {
                let there = said.iter().take_while(|answer| answer.is_some()).count();
                prop_assert!(there >= before);
                prop_assert_eq!(&said[..there], &whole[..there]);
                prop_assert!(said[there..].iter().all(Option::is_none));
            }
            Err(_) => prop_assert_eq!(before, 0, "the list had not begun"),
        }
    }
}
