use std::collections::BTreeSet;

use super::super::settings::Rate;
use super::super::settings::tests::settings;
use super::*;

fn all(settings: &Settings) -> Vec<Step> {
    steps(settings).collect()
}

fn events(steps: &[Step]) -> u64 {
    steps.iter().map(|step| u64::from(step.count)).sum()
}

const SHAPES: [Shape; 11] = [
    Shape::Constant,
    Shape::Poisson,
    Shape::Burst,
    Shape::Import,
    Shape::Waves,
    Shape::FlashSale,
    Shape::NoisyTenant,
    Shape::Failing,
    Shape::Slow,
    Shape::LimitChange,
    Shape::ScaleOut,
];

#[test]
fn every_shape_is_in_order_within_its_time_and_the_same_for_its_seed() {
    for shape in SHAPES {
        for seed in [0, 1, 77, u64::MAX] {
            let settings = Settings {
                seed,
                hot: 3,
                ..settings(shape)
            };
            let steps = all(&settings);
            assert!(steps.is_sorted_by_key(|step| step.at_us), "{shape:?}");
            let sound =
                |step: &Step| step.at_us < 60_000_000 && step.destination < 20 && step.count > 0;
            assert!(steps.iter().all(sound), "{shape:?}");
            assert_eq!(steps, all(&settings), "{shape:?}");
        }
    }
}

#[test]
fn another_seed_is_other_traffic() {
    for shape in [Shape::Constant, Shape::Poisson, Shape::FlashSale] {
        let of = |seed| {
            let settings = Settings {
                seed,
                ..settings(shape)
            };
            all(&settings)
        };
        assert_ne!(of(1), of(2), "{shape:?}");
    }
}

#[test]
fn a_wave_has_the_events_of_its_seconds_at_once() {
    let steps = all(&settings(Shape::Waves));
    assert_eq!(events(&steps), events(&all(&settings(Shape::Constant))));
    let begins: BTreeSet<u64> = steps.iter().map(|step| step.at_us).collect();
    let every_five_seconds = (0..12).map(|wave| wave * 5_000_000);
    assert_eq!(begins, every_five_seconds.collect::<BTreeSet<u64>>());
    let first = steps.iter().filter(|step| step.at_us == 0);
    assert_eq!(first.count(), 500);
}

#[test]
fn a_constant_rate_is_even_over_time_and_destinations() {
    let steps = all(&settings(Shape::Constant));
    assert_eq!(events(&steps), 6_000);
    let gaps = steps.windows(2).map(|two| two[1].at_us - two[0].at_us);
    assert!(gaps.into_iter().all(|gap| gap == 10_000));
    for destination in 0..20 {
        let its = steps.iter().filter(|step| step.destination == destination);
        assert_eq!(its.count(), 300);
    }
}

#[test]
fn poisson_has_the_mean_rate_and_its_scatter() {
    for seed in 0..20 {
        let settings = Settings {
            seed,
            ..settings(Shape::Poisson)
        };
        let steps = all(&settings);
        // Six thousand expected, with a standard deviation of 77.
        assert!(steps.len().abs_diff(6_000) < 400, "{}", steps.len());
        let mut seconds = [0_f64; 60];
        for step in &steps {
            seconds[(step.at_us / 1_000_000) as usize] += 1.0;
        }
        let mean = steps.len() as f64 / 60.0;
        let variance = seconds.iter().map(|one| (one - mean).powi(2)).sum::<f64>() / 60.0;
        assert!((0.4..2.0).contains(&(variance / mean)), "{variance} {mean}");
    }
}

#[test]
fn a_burst_is_ten_thousand_in_thirty_seconds_of_each_minute() {
    let two = Settings {
        rate: Rate(0.0),
        seconds: 120,
        ..settings(Shape::Burst)
    };
    let steps = all(&two);
    let within = |from: u64, until: u64| {
        let of = |step: &&Step| (from * 1_000_000..until * 1_000_000).contains(&step.at_us);
        steps.iter().filter(of).count()
    };
    let counts = [
        within(0, 30),
        within(30, 60),
        within(60, 90),
        within(90, 120),
    ];
    assert_eq!(counts, [10_000, 0, 10_000, 0]);
    assert!(
        steps.iter().all(|step| step.destination == 0),
        "the hot one"
    );
    let beside = all(&settings(Shape::Burst));
    assert_eq!(events(&beside), 16_000, "beside the constant rate");
}

#[test]
fn an_import_is_at_once_and_in_equal_parts() {
    let import = Settings {
        rate: Rate(0.0),
        events: 50_000,
        hot: 7,
        ..settings(Shape::Import)
    };
    let steps = all(&import);
    assert_eq!(events(&steps), 50_000);
    assert!(
        steps
            .iter()
            .all(|step| step.at_us == 0 && step.count <= MAX_STEP)
    );
    for destination in 0..7 {
        let its = steps.iter().filter(|step| step.destination == destination);
        let sum: u32 = its.map(|step| step.count).sum();
        assert!((7_142..=7_143).contains(&sum), "{sum}");
    }
}

#[test]
fn a_flash_sale_rises_tenfold_and_falls_back() {
    let steps = all(&settings(Shape::FlashSale));
    let within = |second: u64| {
        let of = |step: &&Step| step.at_us / 1_000_000 == second;
        steps.iter().filter(of).count()
    };
    assert!((99..=101).contains(&within(5)));
    assert!((950..=1_010).contains(&within(15)), "{}", within(15));
    assert!((500..=620).contains(&within(29)), "{}", within(29));
    assert!((99..=101).contains(&within(50)));
    let hot = steps.iter().filter(|step| step.destination == 0).count();
    assert!(hot * 2 > steps.len(), "most of it is for the hot one");
}

#[test]
fn the_noisy_tenant_hands_in_nine_of_ten() {
    let settings = Settings {
        hot: 2,
        ..settings(Shape::NoisyTenant)
    };
    let steps = all(&settings);
    let noisy = steps.iter().filter(|step| step.destination < 2).count();
    let share = noisy as f64 / steps.len() as f64;
    assert!((0.87..0.93).contains(&share), "{share}");
    let others: std::collections::HashSet<_> = steps.iter().map(|step| step.destination).collect();
    assert_eq!(others.len(), 20, "nobody is left out");
}
