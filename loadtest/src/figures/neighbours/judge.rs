//! What the two may notice of an attack, and what each role may take for it.
//!
//! A figure misses where p99 of a post is more than twice the usual, of an attack that was
//! made again because it was so at first p99 of all posts beside it; where a delivery is
//! very late, where any request of the two was refused, and where a role took more
//! memory than it is given.

use std::collections::BTreeMap;

use anyhow::Context as _;

use super::{Beside, Noticed};
use crate::figures::figure::Figure;
use crate::process::percentile;
use crate::run::settings::Size;

/// How many times the usual a post's p99 may be.
const MOST_TIMES: f64 = 2.0;

/// No delivery may be so late beside whatever others do.
const LATEST_MS: f64 = 5_000.0;

/// MiB of what k8s/base gives each role, and of as much as its worker for a whole
/// Paceline in one process.
const API: (&str, f64) = ("api", 512.0);
const SCHEDULER: (&str, f64) = ("scheduler", 512.0);
const WORKER: (&str, f64) = ("worker", 1_024.0);
const SERVE: (&str, f64) = ("serve", 1_024.0);

/// One of the things that the two notice.
type Aspect = fn(&Noticed) -> &Vec<f64>;

const ASPECTS: [(&str, Aspect); 3] = [
    ("a post", |noticed| &noticed.posts),
    ("to the receiver", |noticed| &noticed.arrivals),
    ("a page", |noticed| &noticed.reads),
];

/// The p99 of each aspect, in milliseconds.
pub(super) fn p99s(noticed: &Noticed) -> impl Iterator<Item = (&'static str, f64)> {
    ASPECTS
        .map(|(what, of)| (what, percentile(of(noticed), 99)))
        .into_iter()
}

/// The p99 of each aspect without an attack, in milliseconds: the middle one, since what
/// an attack leaves behind is not to be a part of it. Of none it is no number.
pub(super) fn usual<'a>(alone: impl Iterator<Item = &'a Noticed> + Clone) -> [f64; 3] {
    ASPECTS.map(|(_, of)| {
        let mut p99s: Vec<f64> = alone.clone().map(|one| percentile(of(one), 99)).collect();
        p99s.sort_unstable_by(f64::total_cmp);
        match p99s.is_empty() {
            true => f64::NAN,
            false => percentile(&p99s, 50),
        }
    })
}

/// What the others are compared with.
pub(super) fn alone(store: &str, usual: [f64; 3]) -> Vec<Figure> {
    let figure = |((what, _), p99): (&(&str, Aspect), f64)| {
        Figure::noted(format!("{store}, alone: {what}, p99"), p99, "ms")
    };
    ASPECTS.iter().zip(usual).map(figure).collect()
}

/// Whether a post took longer than it may: the first of what is compared.
pub(super) fn is_late(beside: &Noticed, usual: [f64; 3]) -> bool {
    (compared("", beside, usual).first()).is_none_or(|of_a_post| !of_a_post.passed)
}

/// What was noticed beside one attack that was made more than once: all of it, and the most
/// memory of each role.
pub(super) fn together(made: Vec<anyhow::Result<Beside>>) -> anyhow::Result<Beside> {
    let (mut noticed, mut memory) = (Noticed::default(), BTreeMap::new());
    for one in made {
        let (more, used) = one?;
        noticed.posts.extend(more.posts);
        noticed.arrivals.extend(more.arrivals);
        noticed.reads.extend(more.reads);
        for (answer, times) in more.refused {
            *noticed.refused.entry(answer).or_default() += times;
        }
        for (role, mib) in used {
            let most = memory.entry(role).or_insert(mib);
            *most = most.max(mib);
        }
    }
    noticed.sort();
    Ok((noticed, memory))
}

/// The name of a row, which says of one that was made more than once how each was.
pub(super) fn named(name: &str, made: &[anyhow::Result<Beside>], usual: [f64; 3]) -> String {
    if made.len() < 2 {
        return name.to_owned();
    }
    let times = |one: &anyhow::Result<Beside>| match one {
        Ok((noticed, _)) => {
            let times = percentile(&noticed.posts, 99) / usual[0];
            format!("{times:.2} of {}", noticed.posts.len())
        }
        Err(_) => "failed".to_owned(),
    };
    let times: Vec<_> = made.iter().map(times).collect();
    format!(
        "{name} ({} posts; {:.1} ms alone)",
        times.join(", "),
        usual[0]
    )
}

/// A post is what the second waits for; the others tell what it costs besides.
pub(super) fn compared(name: &str, beside: &Noticed, usual: [f64; 3]) -> Vec<Figure> {
    let mut figures = Vec::new();
    for ((what, of), usual) in ASPECTS.iter().zip(usual) {
        let ratio = percentile(of(beside), 99) / usual;
        let name = format!("{name}: {what}, p99");
        figures.push(match figures.is_empty() {
            true => Figure::at_most(name, ratio, MOST_TIMES, "× alone"),
            false => Figure::noted(name, ratio, "× alone"),
        });
    }
    // A stall, which a percentile of milliseconds would only make larger.
    let latest = beside.arrivals.last().copied().unwrap_or_default();
    let latest_name = format!("{name}: to the receiver, the latest");
    figures.push(Figure::at_most(latest_name, latest, LATEST_MS, "ms"));
    let refused = f64::from(beside.refused.values().sum::<u32>());
    let name = format!("{name}: refused or failed");
    figures.push(Figure::at_most(name, refused, 0.0, "requests"));
    figures
}

/// The most memory that each role had, in MiB. A role that was not looked at is an
/// error.
pub(super) fn bounded(
    name: &str,
    memory: &BTreeMap<String, f64>,
    size: Size,
) -> anyhow::Result<Vec<Figure>> {
    let roles: &[(&str, f64)] = match size {
        Size::Embedded => &[SERVE],
        Size::Distributed => &[API, SCHEDULER, WORKER],
    };
    let mut figures = Vec::new();
    for (role, most) in roles {
        let used = memory.get(*role).copied();
        let used = used.with_context(|| format!("the memory of {role} is not known"))?;
        let name = format!("{name}: memory of {role}");
        figures.push(Figure::at_most(name, used, *most, "MiB"));
    }
    Ok(figures)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One whose p99 is this, of everything.
    fn noticed(p99: f64) -> Noticed {
        let some = vec![p99 / 2.0, p99];
        Noticed {
            posts: some.clone(),
            arrivals: some.clone(),
            reads: some,
            refused: BTreeMap::new(),
        }
    }

    fn missed(figures: &[Figure]) -> Vec<&str> {
        let missed = figures.iter().filter(|figure| !figure.passed);
        missed.map(|figure| figure.name.as_str()).collect()
    }

    #[test]
    fn the_usual_is_the_middle_one() {
        let alone = [noticed(90.0), noticed(4.0), noticed(5.0)];
        assert_eq!(usual(alone.iter()), [5.0; 3]);
        let figures = super::alone("SQLite", usual(alone.iter()));
        assert_eq!(figures.len(), 3);
        assert_eq!(figures[0].name, "SQLite, alone: a post, p99");
    }

    #[test]
    fn a_post_may_take_twice_as_long_and_no_longer() {
        let usual = [5.0; 3];
        assert!(missed(&compared("x", &noticed(10.0), usual)).is_empty());
        // Pages and deliveries are noted.
        let beside = noticed(10.1);
        assert_eq!(missed(&compared("x", &beside, usual)), ["x: a post, p99"]);
    }

    #[test]
    fn of_an_attack_that_was_made_again_everything_counts() {
        let made = |late: usize, of: usize, mib: f64| {
            let mut noticed = noticed(5.0);
            noticed.posts = vec![40.0; late];
            noticed.posts.resize(of, 5.0);
            noticed.refused.insert("503".to_owned(), 1);
            noticed.sort();
            Ok((noticed, BTreeMap::from([("api".to_owned(), mib)])))
        };
        let first = || made(4, 200, 9.0);
        let twice = vec![first(), made(6, 1_000, 7.0)];
        let of_two = "x (8.00 of 200, 1.00 of 1000 posts; 5.0 ms alone)";
        assert_eq!(named("x", &twice, [5.0; 3]), of_two);
        assert_eq!(named("x", &twice[..1], [5.0; 3]), "x");
        let (noticed, memory) = together(twice).unwrap();
        assert!(!is_late(&noticed, [5.0; 3]));
        assert_eq!(noticed.posts.len(), 1_200);
        assert_eq!((noticed.refused["503"], memory["api"]), (2, 9.0));
        // What was late at first counts as well: thirteen of 1,200 are more than a hundredth.
        let (worse, _) = together(vec![first(), made(9, 1_000, 7.0)]).unwrap();
        assert!(is_late(&worse, [5.0; 3]));
        assert!(together(vec![first(), Err(anyhow::anyhow!("refused"))]).is_err());
    }

    #[test]
    fn no_request_is_refused_and_no_delivery_very_late() {
        let mut beside = noticed(5.0);
        beside.refused.insert("503".to_owned(), 1);
        beside.arrivals.push(LATEST_MS + 1.0);
        let late_and_refused = ["x: to the receiver, the latest", "x: refused or failed"];
        let figures = compared("x", &beside, [5.0; 3]);
        assert_eq!(missed(&figures), late_and_refused);
    }

    #[test]
    fn what_was_never_measured_is_no_pass() {
        let nothing = usual([].iter());
        assert!(is_late(&noticed(5.0), nothing));
        assert_eq!(
            missed(&compared("x", &Noticed::default(), nothing)),
            ["x: a post, p99"]
        );
    }

    #[test]
    fn each_role_has_a_bound_and_must_have_been_looked_at() {
        let of = |api: f64| {
            let used = [("api", api), ("scheduler", 42.0), ("worker", 1_024.0)];
            BTreeMap::from(used.map(|(role, used)| (role.to_owned(), used)))
        };
        let judged = |memory: &BTreeMap<String, f64>| {
            let figures = bounded("x", memory, Size::Distributed).unwrap();
            missed(&figures).len()
        };
        assert_eq!(judged(&of(512.0)), 0);
        assert_eq!(judged(&of(512.1)), 1);
        assert!(bounded("x", &of(1.0), Size::Embedded).is_err());
        let serve = BTreeMap::from([("serve".to_owned(), 2_000.0)]);
        let figures = bounded("x", &serve, Size::Embedded).unwrap();
        assert_eq!(missed(&figures), ["x: memory of serve"]);
    }

    #[test]
    fn the_bounds_are_those_of_the_manifests() {
        let manifests = [
            (API, include_str!("../../../../k8s/base/api.yaml")),
            (
                SCHEDULER,
                include_str!("../../../../k8s/base/scheduler.yaml"),
            ),
            (WORKER, include_str!("../../../../k8s/base/worker.yaml")),
        ];
        for ((role, most), manifest) in manifests {
            let (_, container) = manifest.split_once("- name: paceline\n").unwrap();
            let (_, limits) = container.split_once("limits:\n").unwrap();
            let (_, memory) = limits.split_once("memory: ").unwrap();
            let given = memory.lines().next().unwrap();
            let mib = match given.strip_suffix("Gi") {
                Some(gib) => gib.parse::<f64>().unwrap() * 1_024.0,
                None => given.strip_suffix("Mi").unwrap().parse().unwrap(),
            };
            assert_eq!(most, mib, "{role}");
        }
    }
}
