//! The destinations of a run, and which faults may befall which of them.

use domain::limit::EXACT_MAX;
use domain::limit_group::GroupLimits;
use domain::policy::LimitSettings;
use engine::ports::Registration;
use server::trial::per_second;

mod kinds;
mod manners;

use kinds::{shaped, told};
pub(crate) use manners::{Manners, part};

/// The tenants of a run, by the names that people know: the default one, one with
/// little to send, and one with much.
pub(crate) const TENANTS: [&str; 3] = ["default", "quiet", "noisy"];

const QUIET: usize = 1;
const NOISY: usize = 2;

/// Which part of each tenant's events is posted at once, so that there is a
/// backlog.
pub(crate) const AT_ONCE: [f64; 3] = [0.1, 0.1, 0.5];

/// The tier of the tenants that are not the default one.
pub(crate) const TIER: &str = "standard";

/// The limit group that some of the default tenant's are in.
pub(crate) const GROUP: &str = "together";

/// What those in it may start together: less than each for itself, added up.
pub(crate) fn group_limits(scale: u32) -> GroupLimits {
    GroupLimits {
        per_second: Some((GROUPED_PER_SECOND * scale).min(EXACT_MAX)),
        ..GroupLimits::default()
    }
}

/// Somewhat less than what comes for them in a run of the usual length.
const GROUPED_PER_SECOND: u32 = 8;

/// One destination to be.
#[derive(Debug, Clone)]
pub(crate) struct Destination {
    pub(crate) name: String,
    /// Whose: an index of [`TENANTS`].
    pub(crate) tenant: usize,
    pub(crate) limits: LimitSettings,
    /// Starts a second that its limits allow in the long run: its share of the
    /// events.
    pub(crate) weight: f64,
    pub(crate) manners: Manners,
    /// Behind a proxy of its own.
    pub(crate) proxied: bool,
    /// How many events one request has at most; 1 is no batches.
    pub(crate) batch: u32,
    /// Whether a fault may delete it.
    pub(crate) mortal: bool,
    /// Whether faults may change its limits, cancel its backlog and let its
    /// events grow old.
    pub(crate) changeable: bool,
    /// Whether faults may rotate its secret.
    pub(crate) rotates: bool,
    /// Whether faults may commit events for it long after they are inserted.
    pub(crate) late: bool,
    /// In the limit group of a run.
    pub(crate) grouped: bool,
    /// What it is told of, where it is an operational destination.
    pub(crate) told: Option<Registration>,
}

/// Destinations by number, for faults.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cast {
    pub(crate) proxied: Vec<u32>,
    pub(crate) changed: Vec<u32>,
    pub(crate) deleted: Vec<u32>,
    pub(crate) rotated: Vec<u32>,
    pub(crate) late: Vec<u32>,
}

impl Cast {
    /// That of [`destinations`] at this scale.
    pub(crate) fn new(scale: u32) -> Self {
        let destinations = destinations(scale);
        let numbers = |wanted: fn(&Destination) -> bool| {
            (0_u32..)
                .zip(&destinations)
                .filter(|(_, one)| wanted(one))
                .map(|(number, _)| number)
                .collect()
        };
        Self {
            proxied: numbers(|one| one.proxied),
            changed: numbers(|one| one.changeable),
            deleted: numbers(|one| one.mortal),
            rotated: numbers(|one| one.rotates),
            late: numbers(|one| one.late),
        }
    }
}

/// All of them: about 700 starts a second times `scale`.
pub(crate) fn destinations(scale: u32) -> Vec<Destination> {
    let many = |count: u32, limit: u32| (0..count).map(move |n| (format!("{limit}/s {n}"), limit));
    let mut all: Vec<Destination> = (many(6, 5).chain(many(4, 10)).chain(many(3, 40)))
        .map(|(name, limit)| plain(scale, &name, limit))
        .collect();
    for one in all.iter_mut().step_by(4) {
        one.rotates = true;
    }
    all.push(plain(scale, "100/s", 100));
    all.extend((0..4).map(|n| Destination {
        changeable: true,
        ..plain(scale, &format!("changing {n}"), 15)
    }));
    all.extend((0..4).map(|n| Destination {
        proxied: true,
        ..plain(scale, &format!("behind a proxy {n}"), 20)
    }));
    all.extend((0..2).map(|n| Destination {
        mortal: true,
        ..plain(scale, &format!("to be deleted {n}"), 5)
    }));
    all.push(Destination {
        late: true,
        // Enough that something younger always comes, so little that what waits
        // while it is paused is soon sent.
        weight: f64::from(3 * scale),
        ..plain(scale, "committed late", 10)
    });
    all.extend(
        [
            ("in batches", Manners::Polite),
            ("in batches, flaky", Manners::Flaky(7)),
        ]
        .map(|(name, manners)| batched(scale, name, manners)),
    );
    all.push(Destination {
        limits: per_second(15 * scale),
        // A batch that fails comes again in halves: more requests than of others.
        weight: f64::from(8 * scale),
        ..batched(scale, "answering nonsense", Manners::Hostile)
    });
    all.extend(shaped(scale).map(|(name, limits, rate)| Destination {
        limits,
        weight: rate * f64::from(scale),
        ..plain(scale, name, 1)
    }));
    all.extend(mannered(scale));
    all.extend(of_others(scale));
    all.extend(told().map(|(name, tenant, manners, told)| Destination {
        tenant,
        manners,
        weight: 0.0,
        told: Some(told),
        ..plain(scale, name, 20)
    }));
    all.extend(grouped(scale));
    all
}

/// Those in the group: one fails now and then, one has its own limits changed, and one may
/// be deleted, with starts that still count for the others.
fn grouped(scale: u32) -> impl Iterator<Item = Destination> {
    [
        (Manners::Polite, false, false),
        (Manners::Flaky(7), false, false),
        (Manners::Polite, true, false),
        (Manners::Polite, false, true),
    ]
    .into_iter()
    .enumerate()
    .map(move |(n, (manners, changeable, mortal))| Destination {
        manners,
        changeable,
        mortal,
        grouped: true,
        weight: f64::from(6 * scale),
        ..plain(scale, &format!("{GROUP} {n}"), 12)
    })
}

/// One of the default tenant, polite and left alone.
fn plain(scale: u32, name: &str, limit: u32) -> Destination {
    Destination {
        name: name.to_owned(),
        tenant: 0,
        limits: per_second(limit * scale),
        weight: f64::from(limit * scale),
        manners: Manners::Polite,
        proxied: false,
        batch: 1,
        mortal: false,
        changeable: false,
        rotates: false,
        late: false,
        grouped: false,
        told: None,
    }
}

fn batched(scale: u32, name: &str, manners: Manners) -> Destination {
    Destination {
        manners,
        batch: 8,
        // More events than requests that its limit allows.
        weight: f64::from(15 * scale),
        ..plain(scale, name, 5)
    }
}

/// Those that do not take everything, with their limits and less than these allow.
fn mannered(scale: u32) -> impl Iterator<Item = Destination> {
    let scaled = |rate: u32| f64::from(rate * scale);
    [
        ("flaky", Manners::Flaky(7), 10, scaled(10)),
        // A handful of events, however long the run: each is tried eight times.
        ("broken", Manners::Broken, 10, 0.2),
        // It stands still for a second or two each time.
        ("leaving", Manners::Leaving(40), 10, scaled(4)),
        ("ill for a while", Manners::Ill, 10, scaled(3)),
        ("not coming back", Manners::Dying(10), 10, 6.0),
        ("asking for time", Manners::Asking(10), 15, scaled(5)),
        ("taking less", Manners::Capable(4 * scale), 30, scaled(15)),
    ]
    .into_iter()
    .map(move |(name, manners, limit, weight)| Destination {
        manners,
        weight,
        ..plain(scale, name, limit)
    })
}

/// Those of the other tenants. The noisy one hands in more than anybody else, much
/// of it at once.
fn of_others(scale: u32) -> Vec<Destination> {
    let noisy = (0..3).map(|n| Destination {
        weight: f64::from(120 * scale),
        rotates: n == 0,
        ..plain(scale, &format!("noisy {n}"), 60)
    });
    let by_tier = Destination {
        limits: LimitSettings::default(),
        weight: 8.0,
        ..plain(scale, "noisy, by its tier", 1)
    };
    let noisy = noisy.chain([by_tier]).map(|one| (NOISY, one));
    let quiet = [
        Destination {
            rotates: true,
            ..plain(scale, "quiet", 5)
        },
        Destination {
            changeable: true,
            ..plain(scale, "quiet, changing", 15)
        },
        Destination {
            proxied: true,
            ..plain(scale, "quiet, behind a proxy", 20)
        },
        Destination {
            mortal: true,
            ..plain(scale, "quiet, to be deleted", 5)
        },
        batched(scale, "quiet, in batches", Manners::Flaky(7)),
    ];
    (quiet.map(|one| (QUIET, one)).into_iter().chain(noisy))
        .map(|(tenant, one)| Destination { tenant, ..one })
        .collect()
}

/// So many events each, by weight: at least one, together about `events`.
pub(crate) fn shares(destinations: &[Destination], events: u64) -> Vec<u64> {
    let total: f64 = destinations.iter().map(|one| one.weight).sum();
    let share = |one: &Destination| (events as f64 * one.weight / total).ceil();
    destinations
        .iter()
        .map(|one| share(one).max(1.0) as u64)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_are_all_events_and_a_broken_destination_gets_few() {
        for (scale, events) in [(1, 50_000), (2, 1_000_000)] {
            let destinations = destinations(scale);
            let shares = shares(&destinations, events);
            let total: u64 = shares.iter().sum();
            assert!((events..events + 100).contains(&total), "{total}");
            let broken = destinations
                .iter()
                .position(|one| one.manners == Manners::Broken);
            assert!((1..500).contains(&shares[broken.unwrap()]));
        }
    }

    #[test]
    fn settings_are_valid_and_every_group_of_the_cast_has_somebody() {
        for one in destinations(1) {
            one.limits.validate().unwrap();
        }
        let cast = Cast::new(1);
        let groups = [
            &cast.proxied,
            &cast.changed,
            &cast.deleted,
            &cast.rotated,
            &cast.late,
        ];
        assert_eq!(groups.map(Vec::len), [5, 6, 4, 6, 1]);
    }

    #[test]
    fn one_tenant_is_much_noisier_than_another() {
        let destinations = destinations(1);
        let shares = shares(&destinations, 50_000);
        let of = |tenant| -> u64 {
            let own = destinations.iter().zip(&shares);
            own.filter(|(one, _)| one.tenant == tenant)
                .map(|(_, share)| share)
                .sum()
        };
        assert!(of(NOISY) > 5 * of(QUIET), "{} {}", of(NOISY), of(QUIET));
        assert!(of(QUIET) > 1_000);
    }
}
