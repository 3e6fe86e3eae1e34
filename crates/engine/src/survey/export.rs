//! A picture, as gauges.

use domain::watch::Shortfall;
use metrics::{Label, gauge, histogram};

use super::{Picture, Shown};

/// Sets all gauges that a survey has. Those of a destination that is not shown
/// any more go by themselves: what nobody sets is not exported for long.
pub fn export(picture: &Picture) {
    let fleet = &picture.fleet;
    let in_flight: u32 = fleet.loads.iter().map(|load| load.in_flight).sum();
    gauge!("paceline_survey_timestamp_seconds").set(picture.now.as_micros() as f64 / 1e6);
    gauge!("paceline_backlog_attempts").set(picture.backlog as f64);
    gauge!("paceline_retries_waiting_attempts").set(picture.others as f64);
    gauge!("paceline_backlog_destinations").set(picture.destinations as f64);
    gauge!("paceline_backlog_oldest_seconds").set(picture.oldest);
    gauge!("paceline_in_flight_attempts").set(in_flight);
    gauge!("paceline_permits_outstanding").set(fleet.outstanding);
    gauge!("paceline_workers").set(fleet.workers);
    gauge!("paceline_worker_places").set(fleet.places);
    gauge!("paceline_breakers_open").set(picture.troubles.breakers_open);
    for reason in Shortfall::ALL {
        let short = picture.troubles.short.iter().find(|one| one.0 == reason);
        gauge!("paceline_under_delivery_destinations", "reason" => reason.as_str())
            .set(short.map_or(0, |one| one.1));
    }
    for (trouble, tenants) in picture.troubles.tenants.by_type() {
        gauge!("paceline_troubled_tenants", "trouble" => trouble.as_str()).set(tenants);
    }
    let early: u64 = picture.shown.iter().map(|one| one.early_starts).sum();
    gauge!("paceline_early_starts").set(early as f64);
    picture.shown.iter().for_each(export_one);
}

fn export_one(one: &Shown) {
    let labels = vec![
        Label::new("destination", one.destination.to_string()),
        Label::new("tenant", one.tenant.to_string()),
    ];
    let labels = || labels.clone();
    let limit = |which: &'static str, per_second: Option<f64>| {
        let mut labels = labels();
        labels.push(Label::new("limit", which));
        if let Some(per_second) = per_second {
            gauge!("paceline_destination_limit_starts_per_second", labels).set(per_second);
        }
    };
    limit("configured", one.configured);
    limit("effective", one.effective);
    gauge!("paceline_destination_backlog_attempts", labels()).set(one.backlog);
    gauge!("paceline_destination_backlog_oldest_seconds", labels()).set(one.oldest);
    gauge!("paceline_destination_in_flight_attempts", labels()).set(one.in_flight);
    gauge!("paceline_destination_breaker_open", labels()).set(u32::from(one.breaker_open));
    gauge!("paceline_destination_short", labels()).set(u32::from(one.shortfall.is_some()));
    gauge!("paceline_destination_early_starts", labels()).set(one.early_starts as f64);
    let outcomes = one.outcomes.as_ref();
    let failed = [
        ("5m", one.lately.failed_percent()),
        ("1h", outcomes.and_then(|found| found.hour.failed_percent())),
        ("1d", outcomes.and_then(|found| found.day.failed_percent())),
    ];
    for (over, percent) in failed {
        let mut labels = labels();
        labels.push(Label::new("over", over));
        if let Some(percent) = percent {
            gauge!("paceline_destination_failed_ratio", labels).set(percent / 100.0);
        }
    }
    if let Some(margin) = one.margin {
        gauge!("paceline_destination_margin_seconds", labels()).set(margin.as_secs_f64());
    }
    if let Some(tokens) = one.tokens {
        gauge!("paceline_destination_tokens", labels()).set(tokens);
    }
    if let Some(drain) = one.drains_in {
        gauge!("paceline_destination_drain_seconds", labels()).set(drain.as_secs_f64());
    }
    for lag in &one.lags {
        histogram!("paceline_limiter_lag_seconds").record(*lag);
    }
}
