//! Smart delivery lowers limits and never raises one above what is configured, and
//! somebody asks now and then.

use super::{Case, Judgement};
use crate::chaos::log::SmartLimit;

/// No rate is below one start in ten seconds.
const LEAST: f64 = 0.1;

/// What a rate may lose by being written as a number.
const ROUNDING: f64 = 1e-6;

pub(super) fn judge(case: &Case<'_>, judgement: &mut Judgement) {
    for limit in &case.evidence.smart {
        let Some(rate) = limit.per_second else {
            continue;
        };
        judgement.figures.effective_limits += 1;
        let configured = configured(case, limit);
        if rate > configured + ROUNDING || rate < LEAST - ROUNDING {
            judgement.find("smart", || {
                format!(
                    "{} has {rate} a second from {} us on, configured are {configured}",
                    limit.destination, limit.from
                )
            });
        }
    }
}

/// What was configured then, a second.
fn configured(case: &Case<'_>, limit: &SmartLimit) -> f64 {
    let changes = case.evidence.changes.iter();
    let before = changes
        .filter(|change| change.destination == limit.destination && change.from <= limit.from);
    before
        .max_by_key(|change| change.from)
        .and_then(|change| change.effective.per_second)
        .map_or(f64::INFINITY, f64::from)
}
