//! The shapes of traffic: when which destination gets how many events.
//!
//! Pure functions of the settings and their seed. Nothing here waits, so a
//! shape can be looked at in no time; the client waits until each step is due.

use std::iter;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::settings::{Settings, Shape};

/// The most events of one step, so that what comes at once comes in pieces.
const MAX_STEP: u32 = 1_000;

/// How long a burst takes, and how often there is one.
const BURST_US: f64 = 30_000_000.0;
const BURST_EVERY_US: f64 = 60_000_000.0;

/// How far waves are apart: bodies of thousands come of it.
const WAVE_US: u64 = 5_000_000;

/// How many times the usual rate a flash sale has at its height.
const SALE_HEIGHT: f64 = 10.0;

/// The noisy tenant's share of all events.
pub(crate) const NOISY_SHARE: f64 = 0.9;

/// So many events for one destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Step {
    /// From the beginning.
    pub(crate) at_us: u64,
    /// Its number.
    pub(crate) destination: u32,
    /// Events, at least one.
    pub(crate) count: u32,
}

/// The steps of a run, in the order of their times.
pub(crate) type Steps = Box<dyn Iterator<Item = Step> + Send>;

/// The traffic that these settings ask for.
pub(crate) fn steps(settings: &Settings) -> Steps {
    match settings.shape {
        Shape::Poisson => Box::new(poisson(settings)),
        Shape::Burst => {
            let bursts = bursts(settings);
            Box::new(merged(constant(settings), bursts))
        }
        Shape::Import => {
            let import = import(settings);
            Box::new(merged(constant(settings), import))
        }
        Shape::Waves => Box::new(waves(settings)),
        Shape::FlashSale => Box::new(flash_sale(settings)),
        Shape::NoisyTenant => Box::new(noisy_tenant(settings)),
        Shape::Constant | Shape::Failing | Shape::Slow | Shape::LimitChange | Shape::ScaleOut => {
            Box::new(constant(settings))
        }
    }
}

fn one(at_us: f64, destination: u32) -> Step {
    Step {
        at_us: at_us as u64,
        destination,
        count: 1,
    }
}

fn length_us(settings: &Settings) -> f64 {
    f64::from(settings.seconds) * 1_000_000.0
}

/// At even distances, to each destination in turn; the seed says who is first.
fn constant(settings: &Settings) -> impl Iterator<Item = Step> + Send + use<> {
    let rate = settings.rate.0;
    let events = (rate * f64::from(settings.seconds)).floor() as u64;
    let (destinations, seed) = (u64::from(settings.destinations), settings.seed);
    (0..events).map(move |number| {
        let destination = (number + seed % destinations) % destinations;
        one(number as f64 * 1_000_000.0 / rate, destination as u32)
    })
}

/// The same events, each as soon as the first of its five seconds.
fn waves(settings: &Settings) -> impl Iterator<Item = Step> + Send + use<> {
    constant(settings).map(|step| Step {
        at_us: step.at_us - step.at_us % WAVE_US,
        ..step
    })
}

/// Exponential gaps, any destination.
fn poisson(settings: &Settings) -> impl Iterator<Item = Step> + Send + use<> {
    let (length, destinations) = (length_us(settings), settings.destinations);
    let mut random = StdRng::seed_from_u64(settings.seed);
    let times = arrivals(StdRng::seed_from_u64(settings.seed ^ 1), settings.rate.0);
    times
        .take_while(move |at| *at < length)
        .map(move |at| one(at, random.random_range(0..destinations)))
}

/// A Poisson process: microseconds from the beginning, without end.
fn arrivals(mut random: StdRng, rate: f64) -> impl Iterator<Item = f64> + Send {
    let mut at = 0.0;
    iter::repeat_with(move || {
        // Never the logarithm of zero.
        let drawn: f64 = 1.0 - random.random::<f64>();
        at += -drawn.ln() * 1_000_000.0 / rate;
        at
    })
}

/// So many events within 30 s, each minute, to the hot destinations in turn.
/// A run that is shorter has them all within its length.
fn bursts(settings: &Settings) -> impl Iterator<Item = Step> + Send + use<> {
    let (length, hot) = (length_us(settings), settings.hot);
    let (events, lasts) = (settings.events, BURST_US.min(length));
    let begins = iter::successors(Some(0.0), |begin| Some(begin + BURST_EVERY_US))
        .take_while(move |begin| begin + lasts <= length);
    begins.flat_map(move |begin| {
        let gap = lasts / f64::from(events);
        (0..events).map(move |number| one(begin + f64::from(number) * gap, number % hot))
    })
}

/// All at the beginning, an equal part to each hot destination, in pieces.
fn import(settings: &Settings) -> impl Iterator<Item = Step> + Send + use<> {
    let (events, hot) = (settings.events, settings.hot);
    let part = move |destination| events / hot + u32::from(destination < events % hot);
    (0..events.div_ceil(hot).div_ceil(MAX_STEP)).flat_map(move |piece| {
        (0..hot).filter_map(move |destination| {
            let count = part(destination).checked_sub(piece * MAX_STEP)?;
            (count > 0).then(|| Step {
                at_us: 0,
                destination,
                count: count.min(MAX_STEP),
            })
        })
    })
}

/// The usual rate for a quarter of the time, ten times that at once, falling
/// evenly back until three quarters. What exceeds the usual is for the hot.
fn flash_sale(settings: &Settings) -> impl Iterator<Item = Step> + Send + use<> {
    let (hot, all) = (settings.hot, settings.destinations);
    let mut random = StdRng::seed_from_u64(settings.seed);
    let length = length_us(settings);
    let factor = move |at: f64| {
        let through = (at / length - 0.25) * 2.0;
        if (0.0..1.0).contains(&through) {
            SALE_HEIGHT - (SALE_HEIGHT - 1.0) * through
        } else {
            1.0
        }
    };
    let gap = 1_000_000.0 / settings.rate.0;
    iter::successors(Some(0.0), move |at| Some(at + gap / factor(*at)))
        .take_while(move |at| *at < length)
        .map(move |at| {
            let usual = random.random::<f64>() * factor(at) < 1.0;
            let among = if usual { all } else { hot };
            one(at, random.random_range(0..among))
        })
}

/// Nine of ten events for the hot destinations, the others for the rest.
fn noisy_tenant(settings: &Settings) -> impl Iterator<Item = Step> + Send + use<> {
    let length = length_us(settings);
    let mut random = StdRng::seed_from_u64(settings.seed);
    let (hot, all) = (settings.hot, settings.destinations);
    let times = arrivals(StdRng::seed_from_u64(settings.seed ^ 1), settings.rate.0);
    times.take_while(move |at| *at < length).map(move |at| {
        let noisy = random.random_bool(NOISY_SHARE);
        let among = if noisy { 0..hot } else { hot..all };
        one(at, random.random_range(among))
    })
}

/// Both, in the order of their times; of equal ones the second's first.
fn merged(
    first: impl Iterator<Item = Step> + Send,
    second: impl Iterator<Item = Step> + Send,
) -> impl Iterator<Item = Step> + Send {
    let (mut first, mut second) = (first.peekable(), second.peekable());
    iter::from_fn(move || match (first.peek(), second.peek()) {
        (Some(one), Some(other)) if one.at_us < other.at_us => first.next(),
        (_, Some(_)) => second.next(),
        (_, None) => first.next(),
    })
}

#[cfg(test)]
mod tests;
