//! Workers are scaled by one autoscaler, on what can be delivered.

use domain::permit::MAX_GROUP;
use engine::ports::Fleet;
use engine::scheduler::SchedulerOptions;
use engine::worker::places_of_the_slow;
use serde_json::Value;
use server::cli::Command;
use server::work::{self, Work};

use super::built::{BUILDS, Build, EXTRAS, documents, list, name, read, text};
use super::settings::{arguments, command};

/// What an autoscaler scales, and its bounds.
fn autoscalers(build: &Build) -> Vec<(&Value, u64, u64)> {
    let of = |kind, least, most| {
        build.of_kind(kind).map(move |scaler| {
            let spec = &scaler["spec"];
            let number = |field: &str| spec[field].as_u64().expect("a number");
            (&spec["scaleTargetRef"], number(least), number(most))
        })
    };
    let own = of("HorizontalPodAutoscaler", "minReplicas", "maxReplicas");
    own.chain(of("ScaledObject", "minReplicaCount", "maxReplicaCount"))
        .collect()
}

#[test]
fn what_is_autoscaled_is_there_and_has_no_replicas_of_its_own() {
    let builds = BUILDS.iter().chain([&*EXTRAS]);
    for (build, expected) in builds.zip([0, 1, 1, 3]) {
        let autoscalers = autoscalers(build);
        assert_eq!(
            autoscalers.len(),
            expected,
            "{}: never two of one Deployment",
            build.name
        );
        for (target, least, most) in autoscalers {
            assert_eq!(
                (&target["apiVersion"], &target["kind"]),
                (&"apps/v1".into(), &"Deployment".into())
            );
            let target = build
                .find("Deployment", text(&target["name"]))
                .expect("its target is there");
            assert!(expected == 3 || name(target) == "worker");
            assert!(target["spec"]["replicas"].is_null(), "two would set it");
            assert!(1 < least && least < most);
        }
    }
    let [_, prod, keda] = &*BUILDS;
    assert_eq!(prod.of_kind("HorizontalPodAutoscaler").count(), 1);
    assert_eq!(keda.of_kind("ScaledObject").count(), 1);
}

/// As the API counts what it refuses, and the adapter is told.
#[test]
fn the_api_is_scaled_on_what_it_refuses_for_its_own_sake() {
    let scaler = EXTRAS.find("HorizontalPodAutoscaler", "api");
    let metrics = list(&scaler.expect("it is there")["spec"]["metrics"]);
    let kinds: Vec<&str> = metrics.iter().map(|one| text(&one["type"])).collect();
    assert_eq!(kinds, ["Resource", "External"]);
    let wanted = &metrics[1]["external"]["metric"]["name"];
    let rules = EXTRAS.find("ConfigMap", "prometheus-adapter-api-rules");
    let rules = &rules.expect("it is there")["data"]["rules.yaml"];
    let rules = documents(text(rules));
    let rule = &rules[0]["externalRules"][0];
    assert_eq!(rule["name"]["as"], *wanted);
    let reason = r#"reason="too-fast""#;
    for query in [&rule["seriesQuery"], &rule["metricsQuery"]] {
        assert!(text(query).contains(reason), "{query}");
    }
    let series = text(&rule["seriesQuery"]).split('{').next();
    let row = format!("| `{}{{reason}}` |", series.expect("a series"));
    let page = read("docs/operations.md");
    let row = page.lines().find(|line| line.starts_with(&row));
    assert!(row.expect("it is a metric").contains("`too-fast`"));
}

/// Schedulers admit no more than `permits_per_place` for each place, so a target
/// that a full queue of the largest messages does not exceed scales nothing; and
/// what a worker takes in advance is no reason for another one.
#[test]
fn the_target_is_reached_by_work_and_not_by_prefetch() {
    let [dev, prod, keda] = &*BUILDS;
    let worker = arguments(dev, &dev.pod("worker").expect("there are workers"));
    let Command::Worker(worker) = command(&worker) else {
        panic!("it is a worker")
    };
    let places = u64::from(worker.worker.worker_places);
    let group = u64::try_from(MAX_GROUP).expect("it is small");
    let in_advance = places / group;
    let most = places * u64::from(SchedulerOptions::default().permits_per_place) / group;

    let metric = &prod
        .find("HorizontalPodAutoscaler", "worker")
        .expect("it is there")["spec"]["metrics"][0];
    assert_eq!(metric["external"]["target"]["type"], "AverageValue");
    let own = text(&metric["external"]["target"]["averageValue"]);
    let trigger = queue_trigger(keda);
    for target in [own, text(&trigger["metadata"]["value"])] {
        let target: u64 = target.parse().expect("a number");
        assert!(
            in_advance <= target && target < most,
            "{in_advance} ≤ {target} < {most}"
        );
    }
}

fn queue_trigger(build: &Build) -> &Value {
    let scaler = build.find("ScaledObject", "worker").expect("it is there");
    let mut triggers = list(&scaler["spec"]["triggers"]).iter();
    triggers
        .find(|trigger| trigger["type"] == "rabbitmq")
        .expect("it looks at the queue")
}

#[test]
fn the_queue_that_is_measured_is_the_one_that_is_used() {
    let [dev, prod, keda] = &*BUILDS;
    let worker = arguments(dev, &dev.pod("worker").expect("there are workers"));
    let Command::Worker(worker) = command(&worker) else {
        panic!("it is a worker")
    };
    let queue = worker.queue.queue_name;
    let default = command(&["paceline".to_owned(), "worker".to_owned()]);
    assert!(matches!(default, Command::Worker(default) if default.queue.queue_name == queue));

    let trigger = &queue_trigger(keda)["metadata"];
    assert_eq!(trigger["queueName"], *queue);
    assert_eq!(
        (&trigger["protocol"], &trigger["mode"]),
        (&"http".into(), &"QueueLength".into())
    );

    let metric = &prod
        .find("HorizontalPodAutoscaler", "worker")
        .expect("it is there")["spec"]["metrics"][0];
    let metric = &metric["external"]["metric"];
    assert_eq!(metric["selector"]["matchLabels"]["queue"], *queue);
    let rules = prod
        .find("ConfigMap", "prometheus-adapter-rules")
        .expect("the rule is there");
    let rules = documents(text(&rules["data"]["rules.yaml"]));
    assert_eq!(rules[0]["externalRules"][0]["name"]["as"], metric["name"]);
}

/// KEDA finds the number where it is, and wants workers before all places that the
/// slow may have are taken: those that take 5 s and more take no others.
#[test]
fn keda_asks_a_scheduler_for_work() {
    let [dev, _, keda] = &*BUILDS;
    let scaler = keda.find("ScaledObject", "worker").expect("it is there");
    let mut triggers = list(&scaler["spec"]["triggers"]).iter();
    let trigger = triggers.find(|trigger| trigger["type"] == "metrics-api");
    let asked = &trigger.expect("it asks for work")["metadata"];
    let url = url::Url::parse(text(&asked["url"])).expect("a URL");
    assert_eq!(url.path(), work::PATH);
    let host = url.host_str().expect("it has a host");
    let name = host
        .strip_suffix(".paceline.svc.cluster.local")
        .expect("of the cluster");
    assert_eq!(name, "scheduler", "no other role answers");
    let service = keda.find("Service", name).expect("it is there");
    assert_eq!(
        service["spec"]["ports"][0]["port"],
        url.port().expect("a port")
    );
    let answer = serde_json::to_value(Work::from(&Fleet::default())).expect("it is JSON");
    assert_eq!(answer[text(&asked["valueLocation"])], 0);

    let worker = arguments(dev, &dev.pod("worker").expect("there are workers"));
    let Command::Worker(worker) = command(&worker) else {
        panic!("it is a worker")
    };
    let target: u32 = text(&asked["targetValue"]).parse().expect("a number");
    let places = places_of_the_slow(worker.worker.worker_places);
    assert!(
        places / 2 < target && target < places,
        "{target} of {places}"
    );
}

/// The two autoscalers behave alike.
#[test]
fn keda_scales_like_the_base() {
    let [_, prod, keda] = &*BUILDS;
    let own = prod
        .find("HorizontalPodAutoscaler", "worker")
        .expect("it is there");
    let scaler = keda.find("ScaledObject", "worker").expect("it is there");
    let behaviour = &scaler["spec"]["advanced"]["horizontalPodAutoscalerConfig"]["behavior"];
    assert_eq!(own["spec"]["behavior"], *behaviour);
    assert_eq!(
        own["spec"]["maxReplicas"],
        scaler["spec"]["maxReplicaCount"]
    );
    for trigger in list(&scaler["spec"]["triggers"]) {
        assert_eq!(trigger["metricType"], "AverageValue", "fallback needs it");
        let Some(by) = trigger["authenticationRef"]["name"].as_str() else {
            continue;
        };
        let authentication = keda.find("TriggerAuthentication", by).expect("it is there");
        for secret in list(&authentication["spec"]["secretTargetRef"]) {
            let row = format!("| `{}` | KEDA alone |", text(&secret["key"]));
            assert_eq!(secret["name"], "paceline");
            assert!(
                read("k8s/README.md").contains(&row),
                "{row} is in the table"
            );
        }
    }
}
