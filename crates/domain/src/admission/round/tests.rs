use std::time::Duration;

use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::admission::{Blocked, GRACE, Outstanding};
use crate::limit::Shape;
use crate::policy::LimitSettings;
use crate::share::Load;

const NOW: Timestamp = Timestamp::from_millis(1_000_000);

fn candidate(number: u128, tenant: u128, waiting: i64) -> Candidate {
    Candidate {
        destination: DestinationId(Uuid::from_u128(number)),
        tenant: TenantId(Uuid::from_u128(tenant)),
        tenant_max_in_flight: None,
        policy: LimitSettings::EXACT.policy(),
        epoch: Epoch(7),
        last_permit: PermitNumber(40),
        usage: Usage::default(),
        due: (1..=waiting).map(AttemptId).collect(),
        urgent: 0,
        next_due: None,
    }
}

fn per_second(candidate: Candidate, max: u32) -> Candidate {
    let limit = LimitSettings {
        per_second: Some(max),
        ..LimitSettings::EXACT
    };
    Candidate {
        policy: limit.policy(),
        ..candidate
    }
}

#[test]
fn permits_are_numbered_from_the_last_one_in_the_order_of_what_is_due() {
    let mut one = per_second(candidate(1, 1, 5), 3);
    one.due = vec![AttemptId(9), AttemptId(4), AttemptId(6), AttemptId(2)];
    let round = round(&Room::of(100), [&one], NOW);
    let decided = &round.decided[0];
    let given: Vec<_> = (decided.permits.iter())
        .map(|permit| (permit.attempt.0, permit.number.0, permit.epoch.0))
        .collect();
    assert_eq!(given, [(9, 41, 7), (4, 42, 7), (6, 43, 7)]);
    assert_eq!(decided.last_permit, PermitNumber(43));
    assert_eq!(decided.decision.blocked, Some(Blocked::Limit));
    assert_eq!(round.given.len(), 1);
    assert_eq!(round.given[0].permits, 3);
}

#[test]
fn who_is_given_nothing_keeps_its_last_number() {
    let idle = candidate(1, 1, 0);
    let round = round(&Room::of(100), [&idle], NOW);
    assert_eq!(round.decided[0].last_permit, PermitNumber(40));
    assert!(round.given.is_empty());
}

#[test]
fn tenants_share_and_each_is_decided_again_with_its_share() {
    let many: Vec<Candidate> = (1..=3)
        .map(|number| candidate(number, 1, 90))
        .chain([candidate(4, 2, 90), candidate(5, 2, 2)])
        .collect();
    let round = round(&Room::of(60), &many, NOW);
    let permits: Vec<_> = (round.decided.iter())
        .map(|decided| decided.permits.len())
        .collect();
    assert_eq!(permits, [10, 10, 10, 28, 2]);
    let blocked: Vec<_> = (round.decided.iter())
        .map(|decided| decided.decision.blocked)
        .collect();
    let full = Some(Blocked::Places);
    assert_eq!(blocked, [full, full, full, full, None]);
    let given: Vec<_> = round.given.iter().map(|given| given.permits).collect();
    assert_eq!(given, [30, 30]);
}

#[test]
fn a_tenants_own_bound_holds_for_all_of_its_destinations() {
    let mut both = [candidate(1, 1, 90), candidate(2, 1, 90)];
    for one in &mut both {
        one.tenant_max_in_flight = Some(20);
    }
    let load = Load {
        tenant: both[0].tenant,
        outstanding: 4,
        in_flight: 6,
    };
    let room = Room {
        capacity: 1_000,
        outstanding: 4,
        loads: vec![load],
    };
    let round = round(&room, &both, NOW);
    assert_eq!(round.given[0].permits, 10);
}

/// What a share leaves to one that could have had more.
#[test]
fn a_bucket_is_charged_for_its_share_alone() {
    let bucket = LimitSettings {
        per_second: Some(10),
        shape: Some(Shape::TokenBucket),
        ..LimitSettings::EXACT
    };
    let one = Candidate {
        policy: bucket.policy(),
        ..candidate(1, 1, 10)
    };
    let shared = round(&Room::of(3), [&one], NOW);
    let decided = &shared.decided[0];
    assert_eq!(decided.permits.len(), 3);
    assert_eq!(decided.decision, one.decide(3, NOW));
    assert_ne!(decided.decision.meter, one.decide(u32::MAX, NOW).meter);
}

/// A destination in virtual time: what a store would read of it.
struct Simulated {
    candidate: Candidate,
    /// Permits that may still start: the latest instant, and when it will.
    out: Vec<(Permit, Option<Timestamp>)>,
    starts: Vec<Timestamp>,
}

impl Simulated {
    /// What has happened by `now`, read anew. The rest of its permits may start.
    fn read(&mut self, now: Timestamp) {
        let (over, out): (Vec<_>, Vec<_>) = (std::mem::take(&mut self.out).into_iter())
            .partition(|(permit, start)| start.unwrap_or(permit.deadline) <= now);
        self.out = out;
        self.starts
            .extend(over.into_iter().filter_map(|(_, start)| start));
        self.starts.sort_unstable();
        let usage = &mut self.candidate.usage;
        usage.outstanding = (self.out.iter())
            .map(|(permit, _)| Outstanding {
                not_before: permit.not_before,
                deadline: permit.deadline,
            })
            .collect();
        usage.starts = self.starts.iter().rev().copied().collect();
    }

    /// Each starts when `fates` says, up to its deadline, or not at all.
    fn take(&mut self, decided: &Decided, fates: &mut impl Iterator<Item = Option<u16>>) {
        for permit in &decided.permits {
            let start = fates.next().flatten().map(|part| {
                let most = permit.deadline.since(permit.not_before);
                permit.not_before + most.mul_f64(f64::from(part) / f64::from(u16::MAX))
            });
            self.out.push((*permit, start));
        }
        self.candidate.last_permit = decided.last_permit;
    }

    /// The most starts in any window (w − 1 s, w].
    fn fullest_second(&self) -> usize {
        let second = Duration::from_secs(1);
        (self.starts.iter())
            .map(|w| {
                let inside = |start: &&Timestamp| **start > *w - second && *start <= w;
                self.starts.iter().filter(inside).count()
            })
            .max()
            .unwrap_or(0)
    }
}

proptest! {
    /// The theorem, of each destination of a round, whatever the others want,
    /// however little room there is, and whenever their permits start.
    #[test]
    fn no_window_holds_more_starts_than_its_limit(
        limits in prop::collection::vec(1..12_u32, 1..5),
        rounds in prop::collection::vec((0..40_u32, 0..700_u64), 1..25),
        fates in prop::collection::vec(prop::option::weighted(0.9, any::<u16>()), 1..40),
    ) {
        let mut fates = fates.into_iter().cycle();
        let mut all: Vec<Simulated> = (1..).zip(&limits)
            .map(|(number, limit)| Simulated {
                candidate: per_second(candidate(number, number % 2, 50), *limit),
                out: Vec::new(),
                starts: Vec::new(),
            })
            .collect();
        let mut now = NOW;
        for (capacity, pause) in rounds {
            now = now + Duration::from_millis(pause);
            all.iter_mut().for_each(|one| one.read(now));
            let room = Room::of(capacity);
            let round = round(&room, all.iter().map(|one| &one.candidate), now);
            let permits: u32 = round.given.iter().map(|given| given.permits).sum();
            prop_assert!(permits <= capacity);
            for (one, decided) in all.iter_mut().zip(&round.decided) {
                prop_assert!(decided.permits.iter().all(|permit| permit.not_before >= now));
                one.take(decided, &mut fates);
            }
        }
        let end = now + GRACE + Duration::from_secs(10);
        for (one, limit) in all.iter_mut().zip(&limits) {
            one.read(end);
            prop_assert!(one.fullest_second() <= *limit as usize);
        }
    }

    /// A share is decided, not cut: it is what the rule says of so many places.
    #[test]
    fn each_is_what_the_rule_says_of_its_places(
        wants in prop::collection::vec((0..60_i64, 1..30_u32, 0..3_u128), 0..6),
        capacity in 0..120_u32,
    ) {
        let all: Vec<Candidate> = (1..).zip(&wants)
            .map(|(number, (waiting, limit, tenant))| {
                per_second(candidate(number, *tenant, *waiting), *limit)
            })
            .collect();
        let round = round(&Room::of(capacity), &all, NOW);
        prop_assert_eq!(round.decided.len(), all.len());
        for (one, decided) in all.iter().zip(&round.decided) {
            let alone = one.decide(u32::MAX, NOW);
            let places = permits_of(&decided.decision);
            prop_assert!(places <= permits_of(&alone));
            let again = match places < permits_of(&alone) {
                true => one.decide(places, NOW),
                false => alone,
            };
            prop_assert_eq!(&decided.decision, &again);
            prop_assert_eq!(decided.permits.len(), decided.decision.slots.len());
            let spent = decided.last_permit.0 - one.last_permit.0;
            prop_assert_eq!(spent, i64::from(places));
        }
    }
}

mod groups {
    use std::collections::BTreeMap;

    use super::*;
    use crate::admission::Member;
    use crate::limit_group::GroupLimits;

    fn group(limits: GroupLimits, members: &[(u128, &[i64])]) -> Arc<Group> {
        let member = |(number, starts): &(u128, &[i64])| {
            let starts = starts.iter().copied().map(Timestamp::from_millis);
            let member = Member {
                starts: starts.collect(),
                ..Member::default()
            };
            (DestinationId(Uuid::from_u128(*number)), member)
        };
        Arc::new(Group {
            tenant: TenantId(Uuid::from_u128(1)),
            name: "acme".parse().unwrap(),
            limits,
            members: members.iter().map(member).collect(),
        })
    }

    fn limits(per_second: u32) -> GroupLimits {
        GroupLimits {
            per_second: Some(per_second),
            ..GroupLimits::default()
        }
    }

    fn members(group: &Arc<Group>, waiting: &[i64]) -> Vec<Candidate> {
        (1..)
            .zip(waiting)
            .map(|(number, waiting)| {
                let mut member = candidate(number, 1, *waiting);
                member.usage.group = Some(Arc::clone(group));
                member
            })
            .collect()
    }

    fn given(round: &Round) -> Vec<usize> {
        (round.decided.iter())
            .map(|decided| decided.permits.len())
            .collect()
    }

    #[test]
    fn members_share_what_their_group_has_and_wait_for_it_together() {
        let group = group(limits(10), &[]);
        let members = members(&group, &[90, 2, 90]);
        let round = round(&Room::of(1_000), &members, NOW);
        assert_eq!(given(&round), [4, 2, 4]);
        let blocked = |index: usize| round.decided[index].decision.blocked;
        assert_eq!(
            (blocked(0), blocked(1), blocked(2)),
            (Some(Blocked::Group), None, Some(Blocked::Group))
        );
        // All ten started now leave after a second, and both look at the same time before.
        let looks: Vec<Look> = (round.decided.iter())
            .filter(|decided| decided.decision.blocked.is_some())
            .map(|decided| decided.decision.look)
            .collect();
        let at = NOW + Duration::from_millis(975);
        let floor = Some(at);
        assert_eq!(looks, [Look::At { at, floor }; 2]);
    }

    #[test]
    fn whoever_has_had_least_goes_first() {
        let lately: [i64; 3] = [999_990, 999_980, 999_970];
        let group = group(limits(5), &[(1, &lately)]);
        let members = members(&group, &[9, 9]);
        let round = round(&Room::of(1_000), &members, NOW);
        assert_eq!(given(&round), [0, 2]);
    }

    #[test]
    fn where_one_slot_opens_at_a_time_members_take_turns() {
        let hourly = GroupLimits {
            per_second: Some(1),
            per_hour: Some(100),
            ..GroupLimits::default()
        };
        let mut starts: BTreeMap<u128, Vec<i64>> = BTreeMap::new();
        let mut turns = Vec::new();
        for turn in 0..6 {
            let had: Vec<(u128, &[i64])> = (starts.iter())
                .map(|(number, starts)| (*number, starts.as_slice()))
                .collect();
            let members = members(&group(hourly, &had), &[50, 50, 50]);
            let now = NOW + Duration::from_secs(turn * 2);
            let round = round(&Room::of(1_000), &members, now);
            let winner = given(&round).iter().position(|given| *given == 1).unwrap();
            starts
                .entry(winner as u128 + 1)
                .or_default()
                .push(now.as_micros() / 1_000);
            turns.push(winner);
        }
        assert_eq!(turns, [0, 1, 2, 0, 1, 2]);
    }

    #[test]
    fn a_member_keeps_its_own_limit() {
        let group = group(limits(10), &[]);
        let mut members = members(&group, &[90, 90]);
        members[0] = per_second(members[0].clone(), 2);
        let round = round(&Room::of(1_000), &members, NOW);
        assert_eq!(given(&round), [2, 8]);
        let blocked = round.decided[0].decision.blocked;
        assert_eq!(blocked, Some(Blocked::Limit));
    }

    #[test]
    fn a_permit_of_another_member_counts_at_its_deadline() {
        let mut group = group(limits(1), &[]);
        let late = Outstanding {
            not_before: NOW - GRACE,
            deadline: NOW + Duration::from_millis(10),
        };
        let other = DestinationId(Uuid::from_u128(7));
        Arc::make_mut(&mut group).give(other, [late].into_iter());
        let members = members(&group, &[1]);
        let round = round(&Room::of(1_000), &members, NOW);
        assert_eq!(given(&round), [0]);
        // It may end unused, and nobody would say so here.
        let Look::At { at, .. } = round.decided[0].decision.look else {
            panic!("it waits");
        };
        assert!(at <= NOW + Duration::from_secs(1), "{at:?}");
    }

    #[test]
    fn a_group_of_zero_pauses_its_members() {
        let group = group(limits(0), &[]);
        let round = round(&Room::of(1_000), &members(&group, &[1]), NOW);
        let decision = &round.decided[0].decision;
        assert_eq!(
            (decision.blocked, decision.look),
            (Some(Blocked::Paused), Look::Idle)
        );
    }

    #[test]
    fn what_the_fleet_has_no_room_for_is_not_given_twice() {
        let group = group(limits(10), &[]);
        let members = members(&group, &[90, 90]);
        let round = round(&Room::of(4), &members, NOW);
        assert_eq!(given(&round), [2, 2]);
    }

    proptest! {
        /// The theorem, of a group: whatever the members want, have and are limited to,
        /// no window of it holds more than its limit, however late permits start.
        #[test]
        fn no_window_of_a_group_holds_more_than_its_limit(
            max in 1_u32..12,
            own in prop::collection::vec(prop::option::of(1_u32..9), 1..5),
            waiting in prop::collection::vec(0_i64..12, 5),
            starts in prop::collection::vec((0_u128..5, 0_i64..1_500), 0..20),
            lateness in prop::collection::vec(0_u64..2_000, 7),
        ) {
            let limits = limits(max);
            let mut had: BTreeMap<u128, Vec<i64>> = BTreeMap::new();
            for (member, ago) in starts.into_iter().take(max as usize) {
                had.entry(member + 1).or_default().push(NOW.as_micros() / 1_000 - ago);
            }
            let had: Vec<(u128, &[i64])> = (had.iter())
                .map(|(number, starts)| (*number, starts.as_slice()))
                .collect();
            let group = group(limits, &had);
            let mut members = members(&group, &waiting[..own.len()]);
            for (member, own) in members.iter_mut().zip(&own) {
                if let Some(own) = own {
                    *member = per_second(member.clone(), *own);
                }
            }
            let round = round(&Room::of(1_000), &members, NOW);
            let known = group.members.values().flat_map(|member| member.starts.clone());
            let slots = (round.decided.iter()).flat_map(|decided| &decided.decision.slots);
            let started = (slots.zip(lateness.iter().cycle())).map(|(slot, late)| {
                slot.deadline.min(slot.not_before + Duration::from_millis(*late))
            });
            let all: Vec<Timestamp> = known.chain(started).collect();
            for end in &all {
                let since = *end - Duration::from_secs(1);
                let within = all.iter().filter(|start| **start > since && *start <= end).count();
                prop_assert!(within <= max as usize, "{within} of {max}");
            }
        }
    }
}
