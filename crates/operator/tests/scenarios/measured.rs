//! What it does is counted.

use std::time::Duration;

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use tokio_util::sync::CancellationToken;

use super::world::{World, options, spec};

/// The value of a series.
fn value(metrics: &PrometheusHandle, series: &str) -> f64 {
    let text = metrics.render();
    let line = text
        .lines()
        .find(|line| line.starts_with(&format!("{series} ")));
    let line = line.unwrap_or_else(|| panic!("{series} is not in {text}"));
    let (_, value) = line.rsplit_once(' ').unwrap();
    value.parse().unwrap()
}

#[tokio::test(start_paused = true)]
async fn looks_and_who_leads_are_measured() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let metrics = recorder.handle();
    let _here = metrics::set_default_local_recorder(&recorder);
    let outcomes = |outcome: &str| {
        let series = format!("paceline_operator_reconciles_total{{outcome=\"{outcome}\"}}");
        value(&metrics, &series)
    };
    let world = World::new();
    let stop = CancellationToken::new();
    let client = world.cluster.client.clone();
    let running = operator::run(client, world.paceline.clone(), options(), stop.clone());
    let running = tokio::spawn(running);
    tokio::time::sleep(Duration::from_secs(5)).await;
    let leads = || value(&metrics, "paceline_operator_leads");
    assert!((leads() - 1.0).abs() < f64::EPSILON);
    let done = outcomes("done");
    assert!(done >= 1.0, "{done} looks");
    world.paceline.rows().away = true;
    world.apply(spec(6));
    tokio::time::sleep(Duration::from_secs(5)).await;
    let failed = outcomes("paceline");
    assert!(failed >= 1.0, "{failed} looks");
    assert!((outcomes("done") - done).abs() < f64::EPSILON);
    let looks = value(&metrics, "paceline_operator_reconcile_seconds_count");
    assert!(
        (looks - done - failed).abs() < f64::EPSILON,
        "{looks} looks"
    );
    world.cluster.state().away = true;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(leads().abs() < f64::EPSILON, "it cannot renew");
    stop.cancel();
    running.await.unwrap();
}
