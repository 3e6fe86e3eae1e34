//! Of several operators one acts.

use std::time::Duration;

use operator::election::{Candidate, GIVES_UP_AFTER, GOOD_FOR};
use rand::SeedableRng;
use rand::rngs::StdRng;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::cluster::{Cluster, NAMESPACE};
use super::world::{World, clock, options, spec};

fn candidate(cluster: &Cluster, identity: &str) -> Candidate {
    let place = (NAMESPACE, "paceline-operator");
    let rng = StdRng::seed_from_u64(7);
    Candidate::new(
        cluster.client.clone(),
        place,
        identity.to_owned(),
        clock,
        rng,
    )
}

fn holder(cluster: &Cluster) -> String {
    let lease = cluster.get("leases", "paceline-operator").unwrap();
    lease["spec"]["holderIdentity"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

#[tokio::test(start_paused = true)]
async fn the_second_waits_until_the_first_is_gone() {
    let cluster = Cluster::new();
    let (mut first, mut second) = (candidate(&cluster, "one"), candidate(&cluster, "two"));
    assert!(first.tick().await.unwrap());
    assert!(!second.tick().await.unwrap());
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(first.tick().await.unwrap());
        assert!(!second.tick().await.unwrap());
    }
    // The first is gone without a word.
    tokio::time::sleep(GOOD_FOR).await;
    assert!(!second.tick().await.unwrap(), "not before its time is over");
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(second.tick().await.unwrap());
    assert_eq!(holder(&cluster), "two");
    assert!(!first.tick().await.unwrap());
    let lease = cluster.get("leases", "paceline-operator").unwrap();
    assert_eq!(lease["spec"]["leaseTransitions"], 1);
}

/// However many want it at the same time.
#[tokio::test(start_paused = true)]
async fn one_of_many_at_once_gets_it() {
    let cluster = Cluster::new();
    let mut all: Vec<Candidate> = (0..8)
        .map(|n| candidate(&cluster, &n.to_string()))
        .collect();
    for round in 0..3 {
        for one in &mut all {
            let _ = one.tick().await.unwrap();
        }
        // All have seen it as it is; whoever holds it is gone.
        tokio::time::sleep(GOOD_FOR + Duration::from_secs(1)).await;
        let gone: usize = holder(&cluster).parse().unwrap();
        let others = all.iter_mut().enumerate().filter(|(n, _)| *n != gone);
        let tries = others.map(|(_, one)| async { one.tick().await.unwrap() });
        let held = futures_util::future::join_all(tries).await;
        let leaders = held.into_iter().filter(|held| *held).count();
        assert_eq!(leaders, 1, "round {round}");
    }
}

#[tokio::test(start_paused = true)]
async fn who_cannot_renew_leads_no_more() {
    let cluster = Cluster::new();
    let (sender, mut leads) = watch::channel(false);
    let mut candidate = candidate(&cluster, "one");
    let test = async {
        leads.wait_for(|leads| *leads).await.unwrap();
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(*leads.borrow());
        cluster.state().away = true;
        let since = tokio::time::Instant::now();
        leads.wait_for(|leads| !*leads).await.unwrap();
        assert!(since.elapsed() <= GIVES_UP_AFTER, "{:?}", since.elapsed());
        // It goes on asking, now and then.
        let asked = cluster.state().calls.len();
        tokio::time::sleep(Duration::from_secs(60)).await;
        let asked = cluster.state().calls.len() - asked;
        assert!((1..=60).contains(&asked), "{asked} calls in a minute");
        cluster.state().away = false;
        leads.wait_for(|leads| *leads).await.unwrap();
    };
    tokio::select! {
        () = test => {}
        () = candidate.run(&sender) => panic!("it ran out"),
    }
}

/// The whole operator: the one in waiting takes over at once from one that stops.
#[tokio::test(start_paused = true)]
async fn an_operator_that_stops_gives_the_lease_back() {
    let world = World::new();
    let run = |identity: &str, stop: &CancellationToken| {
        let options = operator::OperatorOptions {
            identity: identity.to_owned(),
            ..options()
        };
        let client = world.cluster.client.clone();
        operator::run(client, world.paceline.clone(), options, stop.clone())
    };
    let (first, second) = (CancellationToken::new(), CancellationToken::new());
    let one = tokio::spawn(run("one", &first));
    tokio::time::sleep(Duration::from_secs(5)).await;
    let two = tokio::spawn(run("two", &second));
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(holder(&world.cluster), "one");
    assert_eq!(world.paceline.done(), ["create"], "by one of them");
    first.cancel();
    one.await.unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(holder(&world.cluster), "two");
    world.apply(spec(50));
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(world.paceline.done(), ["change"]);
    second.cancel();
    two.await.unwrap();
    assert_eq!(holder(&world.cluster), "");
}
