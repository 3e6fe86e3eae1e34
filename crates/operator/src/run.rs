//! The loop: while it leads, it watches the resources of one namespace, and sees
//! to each that has changed, and to all from time to time.

use std::sync::Arc;

use domain::time::Timestamp;
use futures_util::{Stream, StreamExt, stream};
use kube::runtime::controller::{Config, Controller};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::{Predicate, PredicateConfig, WatchStreamExt, predicates, reflector, watcher};
use kube::{Api, Client};
use rand::SeedableRng;
use rand::rngs::StdRng;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::destinations::Destinations;
use crate::election::Candidate;
use crate::reconcile::{Context, reconcile_undisturbed, try_again};
use crate::resource::Destination;
use crate::stir::{self, Stir};

/// How many resources are seen to at once.
const CONCURRENCY: u16 = 8;

/// How the operator runs.
#[derive(Debug, Clone)]
pub struct OperatorOptions {
    /// Whose resources it sees to, and where its Lease is.
    pub namespace: String,
    /// The Lease's name.
    pub lease: String,
    /// Who it is, among all that want the Lease.
    pub identity: String,
    /// Read once for each thing that is dated.
    pub clock: fn() -> Timestamp,
    /// For jitter.
    pub seed: u64,
}

/// A cluster, and the namespace that we are in there.
#[derive(Clone)]
pub struct Cluster {
    pub client: Client,
    pub namespace: String,
}

/// As a pod, by the token that is mounted; elsewhere by the kubeconfig. Dials
/// nothing yet.
pub async fn connect() -> Result<Cluster, Box<dyn std::error::Error + Send + Sync>> {
    let config = kube::Config::infer().await?;
    let namespace = config.default_namespace.clone();
    let client = Client::try_from(config)?;
    Ok(Cluster { client, namespace })
}

/// Goes on until `shutdown`, and gives the Lease back.
pub async fn run(
    client: Client,
    destinations: Arc<dyn Destinations>,
    options: OperatorOptions,
    shutdown: CancellationToken,
) {
    let (sender, mut leads) = watch::channel(false);
    let mut candidate = Candidate::new(
        client.clone(),
        (&options.namespace, &options.lease),
        options.identity.clone(),
        options.clock,
        StdRng::seed_from_u64(options.seed),
    );
    let acting = async {
        loop {
            if leads.wait_for(|leads| *leads).await.is_err() {
                return;
            }
            tokio::select! {
                biased;
                // A look that is under way when the Lease is lost goes on to its end.
                _ = leads.wait_for(|leads| !*leads) => {}
                () = act(client.clone(), Arc::clone(&destinations), &options) => {}
            }
        }
    };
    tokio::select! {
        biased;
        () = shutdown.cancelled() => {}
        () = candidate.run(&sender) => {}
        () = acting => {}
    }
    if let Err(error) = candidate.resign().await {
        tracing::debug!(%error, "the lease was not given back; it ends by itself");
    }
}

/// Sees to the resources, for as long as it is let.
pub async fn act(client: Client, destinations: Arc<dyn Destinations>, options: &OperatorOptions) {
    let api: Api<Destination> = Api::namespaced(client.clone(), &options.namespace);
    let rng = StdRng::seed_from_u64(options.seed.wrapping_add(1));
    let context = Context::new(
        client,
        Arc::clone(&destinations),
        options.clock,
        rng,
        &options.identity,
    );
    let (reader, writer) = reflector::store();
    // What only changes the status changes no generation: our own writing does not
    // call us again.
    let changed = predicates::generation.combine(predicates::finalizers);
    let resources = watcher(api, watcher::Config::default())
        .default_backoff()
        .reflect(writer)
        .applied_objects()
        .predicate_filter(changed, PredicateConfig::default());
    let stirred = stirred(destinations, options.namespace.clone());
    Controller::for_stream(resources, reader)
        .reconcile_on(stirred)
        .with_config(Config::default().concurrency(CONCURRENCY))
        .run(
            reconcile_undisturbed,
            |resource, failure, context| try_again(&resource, failure, &context),
            Arc::new(context),
        )
        .for_each(|done| async {
            // What reconciling failed of was told by `try_again`.
            if let Err(error @ kube::runtime::controller::Error::QueueError(_)) = done {
                tracing::warn!(%error, "the watch of resources was broken off");
            }
        })
        .await;
}

/// The resources of a namespace that are worth a look before their turn, as long as it
/// is asked.
fn stirred(
    destinations: Arc<dyn Destinations>,
    namespace: String,
) -> impl Stream<Item = ObjectRef<Destination>> {
    let begun = (destinations, Stir::default());
    let rounds = stream::unfold(begun, |(destinations, mut stir)| async {
        sleep(stir::EVERY).await;
        // In a task of its own, as each look: a store must not be abandoned in
        // mid-question.
        let asked = Arc::clone(&destinations);
        let glances = tokio::spawn(async move { asked.glance().await }).await;
        let worth = match glances {
            Ok(Ok(glances)) => stir.worth_a_look(&glances, Instant::now()),
            Ok(Err(error)) => {
                tracing::debug!(%error, "no glance at destinations; looks go on in their turn");
                Vec::new()
            }
            Err(_broken) => Vec::new(),
        };
        Some((worth, (destinations, stir)))
    });
    rounds.flat_map(move |worth| {
        let of_ours = |resource: String| {
            let name = resource.strip_prefix(&*namespace)?.strip_prefix('/')?;
            Some(ObjectRef::new(name).within(&namespace))
        };
        let references: Vec<_> = worth.into_iter().filter_map(of_ours).collect();
        stream::iter(references)
    })
}
