//! One resource, looked at once: the plan is made, done and told.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use domain::ids::DestinationId;
use domain::time::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams};
use kube::runtime::controller::Action;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::runtime::finalizer::{self, finalizer};
use kube::{Api, Client, Resource, ResourceExt};
use rand::RngExt;
use rand::rngs::StdRng;
use secrecy::SecretString;
use serde_json::json;
use tokio::time::Instant;

use crate::destinations::{
    self, ClientCertificate, Credentials, Destinations, Observed, Owner, Refusal, Secrets, Stored,
    Wanted,
};
use crate::plan::{self, Plan, SecretIs, Step};
use crate::resource::{
    CertificateReference, Destination, DestinationSpec, OAuth2, SecretReference,
};
use crate::status::{self, Report};
use crate::verdict::{Reason, Verdict};
use crate::{FINALIZER, MANAGER};

/// After the first failure; each further one in a row waits twice as long, of
/// which at least a half.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// No failure waits for longer.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Why a resource could not be seen to: it is tried again.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The API server.
    #[error("the API server: {0}")]
    Cluster(#[from] Box<kube::Error>),
    /// Paceline's store.
    #[error("paceline: {0}")]
    Paceline(#[from] Refusal),
    /// A look that panicked.
    #[error("broken off: {0}")]
    Broken(#[from] tokio::task::JoinError),
    /// The finalizer was not added or removed.
    #[error("finalizer: {0}")]
    Finalizer(String),
}

/// A look that did not fail, in metrics.
const DONE: &str = "done";

/// All that a look can come to, in metrics.
pub const OUTCOMES: [&str; 4] = [DONE, "cluster", "paceline", "broken"];

impl Failure {
    /// Who failed, in metrics.
    const fn as_str(&self) -> &'static str {
        match self {
            Self::Cluster(_) | Self::Finalizer(_) => OUTCOMES[1],
            Self::Paceline(_) => OUTCOMES[2],
            Self::Broken(_) => OUTCOMES[3],
        }
    }
}

impl From<kube::Error> for Failure {
    fn from(error: kube::Error) -> Self {
        Self::Cluster(Box::new(error))
    }
}

/// What reconciling needs, shared by all resources.
pub struct Context {
    client: Client,
    destinations: Arc<dyn Destinations>,
    recorder: Recorder,
    clock: fn() -> Timestamp,
    rng: Mutex<StdRng>,
    /// Failures in a row, by the uid of the resource.
    failures: Mutex<HashMap<String, u32>>,
}

impl Context {
    #[must_use]
    pub fn new(
        client: Client,
        destinations: Arc<dyn Destinations>,
        clock: fn() -> Timestamp,
        rng: StdRng,
        instance: &str,
    ) -> Self {
        let reporter = Reporter {
            controller: MANAGER.to_owned(),
            instance: Some(instance.to_owned()),
        };
        Self {
            recorder: Recorder::new(client.clone(), reporter),
            client,
            destinations,
            clock,
            rng: Mutex::new(rng),
            failures: Mutex::default(),
        }
    }

    /// About so long: what was asked for at one time is not at another.
    fn about(&self, pause: Duration) -> Duration {
        let mut rng = self.rng.lock().unwrap_or_else(PoisonError::into_inner);
        pause.mul_f64(rng.random_range(0.9..1.1))
    }

    fn failures(&self) -> std::sync::MutexGuard<'_, HashMap<String, u32>> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes the destination what the resource says, or lets it go with the resource.
pub async fn reconcile(
    resource: Arc<Destination>,
    context: Arc<Context>,
) -> Result<Action, Failure> {
    let uid = resource.uid().unwrap_or_default();
    let namespace = resource.namespace().unwrap_or_default();
    let api: Api<Destination> = Api::namespaced(context.client.clone(), &namespace);
    let of = |event| async {
        match event {
            finalizer::Event::Apply(resource) => context.apply(&api, &resource).await,
            finalizer::Event::Cleanup(resource) => context.clean_up(&resource).await,
        }
    };
    let done = finalizer(&api, FINALIZER, resource, of).await;
    let action = done.map_err(|error| match error {
        finalizer::Error::ApplyFailed(failure) | finalizer::Error::CleanupFailed(failure) => {
            failure
        }
        other => Failure::Finalizer(other.to_string()),
    })?;
    context.failures().remove(&uid);
    Ok(action)
}

/// The same in a task of its own, which goes on where we are dropped: a store must
/// not be abandoned in mid-transaction. All of it can be repeated, and the store
/// decides whose a destination is, so it does no harm beside another operator.
pub async fn reconcile_undisturbed(
    resource: Arc<Destination>,
    context: Arc<Context>,
) -> Result<Action, Failure> {
    let began = Instant::now();
    let looked = tokio::spawn(reconcile(resource, context)).await;
    let looked = looked.unwrap_or_else(|broken| Err(Failure::Broken(broken)));
    metrics::histogram!("paceline_operator_reconcile_seconds")
        .record(began.elapsed().as_secs_f64());
    let outcome = looked.as_ref().map_or_else(Failure::as_str, |_| DONE);
    metrics::counter!("paceline_operator_reconciles_total", "outcome" => outcome).increment(1);
    looked
}

/// When to try again: later and later, and not all at once.
#[must_use]
pub fn try_again(resource: &Destination, failure: &Failure, context: &Context) -> Action {
    let uid = resource.uid().unwrap_or_default();
    let failures = {
        let mut failures = context.failures();
        let so_far = failures.entry(uid).or_default();
        *so_far = so_far.saturating_add(1);
        *so_far
    };
    let pause = FIRST_PAUSE
        .saturating_mul(1 << (failures - 1).min(10))
        .min(LONGEST_PAUSE);
    let mut rng = context.rng.lock().unwrap_or_else(PoisonError::into_inner);
    let pause = pause.mul_f64(rng.random_range(0.5..1.0));
    let resource = resource.path();
    tracing::warn!(%resource, error = %failure, failures, "not reconciled; will try again");
    Action::requeue(pause)
}

impl Context {
    async fn apply(
        &self,
        api: &Api<Destination>,
        resource: &Destination,
    ) -> Result<Action, Failure> {
        let secrets = self.secrets(resource).await?;
        let (plan, id) = match self.carry_out(resource, &secrets).await {
            Ok(done) => done,
            // Told, and then tried again.
            Err(refusal) => {
                let plan = unknown(&refusal);
                self.tell(api, resource, &plan, (known_id(resource), None))
                    .await?;
                return match refusal {
                    Refusal::Unavailable(_) => Err(refusal.into()),
                    _ => Ok(Action::requeue(self.about(plan.requeue(None)))),
                };
            }
        };
        let observed = match id {
            Some(id) => {
                let owner = owner(resource)?;
                Some(self.destinations.observe(&owner, id).await?)
            }
            None => None,
        };
        let is_busy =
            (observed.as_ref()).map(|seen| seen.backlog > 0 || seen.starts_per_second > 0.0);
        self.tell(api, resource, &plan, (id, observed)).await?;
        Ok(Action::requeue(self.about(plan.requeue(is_busy))))
    }

    /// Does what there is to do. A step that is refused is the plan's verdict,
    /// unless the same may go well by itself.
    async fn carry_out(
        &self,
        resource: &Destination,
        secrets: &Result<Secrets, String>,
    ) -> Result<(Plan, Option<DestinationId>), Refusal> {
        let owner = owner(resource)?;
        let wanted = Wanted::of(&owner.name, &resource.spec)?;
        let there = secrets.as_ref().ok();
        let with = there.map(|secrets| (&wanted, secrets));
        let stored = self.destinations.look(&owner, with).await?;
        let is_there = match secrets {
            Ok(_) => SecretIs::There,
            Err(why) => SecretIs::Missing(why),
        };
        let plan = plan::plan(&wanted, &stored, is_there);
        let mut id = match stored {
            Stored::Ours(row) | Stored::Released(row) => Some(row.id),
            _ => plan.about,
        };
        for step in &plan.steps {
            let done = self.step(step, &owner, &wanted, there).await;
            match done {
                Ok(made) => id = made.or(id),
                Err(refusal @ (Refusal::Unavailable(_) | Refusal::NotFound(_))) => {
                    return Err(refusal);
                }
                Err(refusal) => {
                    // What was not taken over is not ours to look at.
                    let id = id.filter(|_| !matches!(step, Step::TakeOver(_)));
                    return Ok((plan.refused(&refusal), id));
                }
            }
        }
        Ok((plan, id))
    }

    async fn step(
        &self,
        step: &Step,
        owner: &Owner,
        wanted: &Wanted,
        secrets: Option<&Secrets>,
    ) -> Result<Option<DestinationId>, Refusal> {
        let destinations = &self.destinations;
        let resource = &owner.resource;
        tracing::info!(%resource, ?step, "reconciles");
        let missing = || Refusal::Invalid("signingSecretRef: there is no such secret".to_owned());
        match *step {
            Step::Create => {
                let secrets = secrets.ok_or_else(missing)?;
                let made = destinations.create(owner, wanted, secrets).await?;
                return Ok(Some(made));
            }
            Step::Rotate(id) => {
                let secrets = secrets.ok_or_else(missing)?;
                destinations.rotate(owner, id, &secrets.signing).await?;
            }
            Step::Show(id) => {
                let secrets = secrets.ok_or_else(missing)?;
                destinations.show(owner, id, &secrets.credentials).await?;
            }
            Step::TakeOver(id) => destinations.take_over(owner, id).await?,
            Step::Change(id) => destinations.change(owner, id, wanted).await?,
            Step::Release(id) => destinations.release(owner, id).await?,
            Step::Discard(id) => destinations.discard(owner, id).await?,
        }
        Ok(None)
    }

    async fn clean_up(&self, resource: &Destination) -> Result<Action, Failure> {
        // One that never could have had a destination has nothing to let go.
        let Ok(owner) = owner(resource) else {
            return Ok(Action::await_change());
        };
        let stored = self.destinations.look(&owner, None).await;
        let stored = match stored {
            Err(Refusal::NotFound(_)) => Stored::Absent,
            stored => stored?,
        };
        let step = plan::farewell(resource.spec.deletion_policy, &stored);
        let done = match &step {
            Some(Step::Discard(id)) => self.destinations.discard(&owner, *id).await,
            Some(Step::Release(id)) => self.destinations.release(&owner, *id).await,
            _ => Ok(()),
        };
        let resource = &owner.resource;
        tracing::info!(%resource, ?step, "lets go");
        match done {
            // Somebody else has deleted it.
            Ok(()) | Err(Refusal::NotFound(_)) => Ok(Action::await_change()),
            Err(refusal) => Err(refusal.into()),
        }
    }

    /// What the Secrets hold that the resource names; or which of them is missing.
    async fn secrets(&self, resource: &Destination) -> Result<Result<Secrets, String>, Failure> {
        let mut found = HashMap::new();
        let namespace = resource.namespace().unwrap_or_default();
        let api: Api<Secret> = Api::namespaced(self.client.clone(), &namespace);
        for name in resource.spec.secret_names() {
            if let Some(secret) = api.get_opt(name).await? {
                found.insert(name.to_owned(), secret.data.unwrap_or_default());
            }
        }
        Ok(held(&resource.spec, &found))
    }

    /// Writes the status, if there is anything new to tell, and then its events:
    /// once each, or, if we end in between, not at all.
    async fn tell(
        &self,
        api: &Api<Destination>,
        resource: &Destination,
        plan: &Plan,
        (id, observed): (Option<DestinationId>, Option<Observed>),
    ) -> Result<(), Failure> {
        let before = resource.status.clone().unwrap_or_default();
        let report = Report {
            plan,
            id,
            observed,
            generation: resource.metadata.generation,
            now: (self.clock)(),
        };
        let after = status::status(&before, &report);
        if after == before {
            return Ok(());
        }
        let patch = json!({
            "apiVersion": Destination::api_version(&()),
            "kind": Destination::kind(&()),
            "status": after,
        });
        let options = PatchParams::apply(MANAGER).force();
        api.patch_status(&resource.name_any(), &options, &Patch::Apply(patch))
            .await?;
        let reference = resource.object_ref(&());
        for transition in status::transitions(&before, &after) {
            let event = Event {
                type_: match transition.is_warning {
                    true => EventType::Warning,
                    false => EventType::Normal,
                },
                reason: transition.reason,
                note: Some(transition.message),
                action: "Reconcile".to_owned(),
                secondary: None,
            };
            if let Err(error) = self.recorder.publish(&event, &reference).await {
                tracing::debug!(%error, "an event was not recorded");
            }
        }
        Ok(())
    }
}

/// By the name of the Secret and its key.
type Found = HashMap<String, BTreeMap<String, ByteString>>;

/// What a resource names, of the Secrets that were found.
fn held(spec: &DestinationSpec, found: &Found) -> Result<Secrets, String> {
    let text = |name: &String, key: &String| {
        let secret = found.get(name);
        let secret = secret.ok_or_else(|| format!("there is no Secret {name}"))?;
        let bytes = secret.get(key);
        let bytes = bytes.ok_or_else(|| format!("the Secret {name} has no key {key}"))?;
        match std::str::from_utf8(&bytes.0) {
            Ok(text) => Ok(SecretString::from(text.trim())),
            Err(_invalid) => Err(format!("the Secret {name} has no text under {key}")),
        }
    };
    let of = |one: &SecretReference| text(&one.name, &one.key);
    let certificate = |one: &CertificateReference| {
        Ok::<_, String>(ClientCertificate {
            certificate: text(&one.name, &one.certificate)?,
            private_key: text(&one.name, &one.private_key)?,
        })
    };
    let client = |one: &OAuth2| {
        Ok::<_, String>(destinations::Client {
            facts: plan::client(one),
            secret: of(&one.client_secret_ref)?,
        })
    };
    Ok(Secrets {
        signing: of(&spec.signing_secret_ref)?,
        credentials: Credentials {
            client_certificate: (spec.client_certificate_ref.as_ref())
                .map(certificate)
                .transpose()?,
            oauth2: spec.oauth2.as_ref().map(client).transpose()?,
        },
    })
}

/// What is so when nothing could be decided.
fn unknown(refusal: &Refusal) -> Plan {
    Plan {
        steps: Vec::new(),
        about: None,
        synced: Verdict::no(Reason::of(refusal), &refusal.to_string()),
        conflict: None,
    }
}

fn known_id(resource: &Destination) -> Option<DestinationId> {
    let id = resource.status.as_ref()?.destination_id.as_ref()?;
    id.parse().ok()
}

fn owner(resource: &Destination) -> Result<Owner, Refusal> {
    Ok(Owner {
        tenant: plan::tenant(&resource.spec)?,
        resource: resource.path(),
        name: resource.name_any(),
        uid: resource.uid().unwrap_or_default(),
    })
}
