//! Handshakes: what a receiver allows is in force, and nothing before it has answered.

use domain::attempt::AttemptState;
use domain::handshake::{Answer, AskOutcome, Handshake, unreachable};
use domain::ids::{DestinationId, TenantId};
use domain::operations::OperationalType;
use domain::time::Timestamp;

use super::World;
use super::tenants::new_tenant;
use engine::ports::{
    CatalogError, ClaimAnswer, DEFAULT_TENANT, DestinationChange, HandshakeRecorded, HandshakeView,
    Question,
};

async fn view(world: &World, destination: DestinationId) -> HandshakeView {
    let view = world.catalog.handshake(DEFAULT_TENANT, destination);
    view.await.unwrap()
}

async fn take(world: &World) -> Vec<Question> {
    world
        .handshakes
        .take_handshakes(None, 10)
        .await
        .unwrap()
        .taken
}

async fn record(world: &World, question: &Question, answer: &Answer) -> HandshakeRecorded {
    let recorded = world.handshakes.record_handshake(question, answer).await;
    recorded.unwrap()
}

fn per_minute(rate: u32) -> Answer {
    Answer::Allowed(rate.try_into().ok())
}

fn no() -> Answer {
    Answer::Refused("it answered 405".to_owned())
}

async fn change(world: &World, destination: DestinationId, change: DestinationChange) {
    let changed = (world.catalog).change_destination(DEFAULT_TENANT, destination, &change);
    changed.await.unwrap();
}

/// 10 a second, of which the receiver is asked first, and a backlog of 20.
async fn asking(world: &World) -> DestinationId {
    let builder = world.destination().per_second(10);
    let destination = builder.handshake(Handshake::CloudEvents).create().await;
    world.accept(destination, 20).await;
    destination
}

/// The same, once it has answered this.
async fn answered(world: &World, answer: &Answer) -> (DestinationId, Question) {
    let destination = asking(world).await;
    let [question] = &take(world).await[..] else {
        panic!("one question");
    };
    let question = question.clone();
    assert_eq!(question.destination, destination);
    record(world, &question, answer).await;
    (destination, question)
}

/// What is in force, as history says it.
async fn in_force(world: &World, destination: DestinationId) -> Option<u32> {
    let history = world.catalog.limit_history(destination).await.unwrap();
    history.last().unwrap().effective.allowed_per_minute
}

/// The receiver has to answer first; and then its rate is a window like any other.
pub async fn nothing_starts_until_the_receiver_allows_it(world: &World) {
    let destination = asking(world).await;
    assert_eq!(world.admit(destination).await, []);
    assert_eq!(in_force(world, destination).await, Some(0));
    let asked = take(world).await;
    let question = Question {
        destination,
        tenant: DEFAULT_TENANT,
        url: "https://receiver.example/hooks".to_owned(),
        per_minute: 600.try_into().ok(),
        identity: None,
    };
    assert_eq!(asked, std::slice::from_ref(&question));
    assert_eq!(take(world).await, [], "somebody asks already");
    assert_eq!(world.admit(destination).await, []);

    let recorded = record(world, &question, &per_minute(3)).await;
    assert_eq!((recorded.changed, recorded.told), (true, None));
    let permits = world.admit(destination).await;
    assert_eq!(permits.len(), 3, "of 10 a second");
    let worker = world.worker().await;
    assert_eq!(world.start(worker, &permits).await.len(), 3);
    assert_eq!(world.admit(destination).await, []);
    assert_eq!(in_force(world, destination).await, Some(3));
    let read = world.catalog.destination(DEFAULT_TENANT, destination);
    let read = read.await.unwrap();
    assert_eq!(read.handshake, Handshake::CloudEvents);
    assert_eq!(read.effective.allowed_per_minute, Some(3));
    assert_eq!(
        (read.limits.per_second, read.limits.per_minute),
        (Some(10), None)
    );
    assert_eq!(take(world).await, [], "tomorrow");
}

/// As many as are configured.
pub async fn a_receiver_may_allow_any_rate(world: &World) {
    let (destination, _) = answered(world, &Answer::Allowed(None)).await;
    assert_eq!(world.admit(destination).await.len(), 10);
    assert_eq!(in_force(world, destination).await, None);
    let standing = view(world, destination).await.standing.unwrap();
    assert_eq!(standing.outcome, Some(AskOutcome::Allowed));
    assert!(standing.allowed_until > standing.asked_at);
}

/// One that changes its mind is sent nothing more, and operators are told once.
pub async fn a_refusal_revokes_what_was_allowed(world: &World) {
    let (destination, question) = answered(world, &per_minute(60)).await;
    let permits = world.admit(destination).await;
    assert_eq!(permits.len(), 10);
    let recorded = record(world, &question, &no()).await;
    assert!(recorded.changed);
    let told = recorded.told.unwrap();
    assert_eq!(told.news.event_type, OperationalType::HandshakeRefused);
    assert_eq!(told.destination, Some(destination));
    let worker = world.worker().await;
    let answers = world.claim(worker, &permits).await.answers;
    assert!(
        answers.iter().all(|one| *one == ClaimAnswer::Refused),
        "{answers:?}"
    );
    assert_eq!(world.admit(destination).await, []);
    assert_eq!(
        world.states(destination).await,
        vec![AttemptState::Waiting; 20]
    );
    assert_eq!(in_force(world, destination).await, Some(0));
    let standing = view(world, destination).await.standing.unwrap();
    assert_eq!(standing.outcome, Some(AskOutcome::Refused));
    assert_eq!(standing.problem.as_deref(), Some("it answered 405"));
    assert_eq!((standing.failures, standing.allowed_until), (1, None));
    let again = record(world, &question, &no()).await;
    assert_eq!(again, HandshakeRecorded::default());

    let well = record(world, &question, &per_minute(60)).await;
    let told = well.told.unwrap().news.event_type;
    assert_eq!(told, OperationalType::HandshakeAllowed);
    assert_eq!(world.admit(destination).await.len(), 10);
    let events = world.health().operational_events(0, 10).await.unwrap();
    let types: Vec<_> = events.iter().map(|one| one.event_type.as_str()).collect();
    assert_eq!(types, ["handshake_refused", "handshake_allowed"]);
}

/// What was allowed stands for a while where nobody answers; what was not is asked again.
pub async fn a_receiver_that_cannot_be_reached_keeps_what_it_allowed(world: &World) {
    let (destination, question) = answered(world, &per_minute(60)).await;
    let recorded = record(world, &question, &unreachable("connect failed")).await;
    assert_eq!(recorded, HandshakeRecorded::default());
    assert_eq!(world.admit(destination).await.len(), 10);

    let (other, _) = answered(world, &unreachable("connect failed")).await;
    assert_eq!(world.admit(other).await, []);
    assert_eq!(take(world).await, [], "in a minute");
}

/// Another URL is another receiver: permits go back, and a late answer of the old one says
/// nothing.
pub async fn another_url_is_asked_anew(world: &World) {
    let (destination, old) = answered(world, &Answer::Allowed(None)).await;
    let permits = world.admit(destination).await;
    assert_eq!(permits.len(), 10);
    let moved = DestinationChange {
        url: Some("https://elsewhere.example/".to_owned()),
        ..DestinationChange::default()
    };
    change(world, destination, moved).await;
    let worker = world.worker().await;
    let answers = world.claim(worker, &permits).await.answers;
    assert!(
        answers.iter().all(|one| *one == ClaimAnswer::Refused),
        "{answers:?}"
    );
    assert_eq!(world.admit(destination).await, []);
    let late = record(world, &old, &per_minute(60)).await;
    assert_eq!(late, HandshakeRecorded::default());
    assert_eq!(world.admit(destination).await, []);
    assert_eq!(
        view(world, destination).await.standing.unwrap().outcome,
        None
    );

    let asked = take(world).await;
    assert_eq!(asked[0].url, "https://elsewhere.example/");
    record(world, &asked[0], &per_minute(2)).await;
    assert_eq!(world.admit(destination).await.len(), 2);
    // A name is not.
    let named = DestinationChange {
        name: Some("shop".to_owned()),
        ..DestinationChange::default()
    };
    change(world, destination, named).await;
    assert_eq!(in_force(world, destination).await, Some(2));
}

/// By the API and by SQL, and off again.
pub async fn it_is_turned_on_and_off(world: &World) {
    let destination = world.destination().per_second(10).create().await;
    world.accept(destination, 5).await;
    let off = HandshakeView {
        handshake: Handshake::None,
        standing: None,
    };
    assert_eq!(view(world, destination).await, off);
    assert_eq!(take(world).await, []);
    let epoch = |targets: Vec<engine::ports::Target>| (targets[0].epoch, targets[0].names_origin);
    let target = async || epoch(world.store.targets(&[destination]).await.unwrap());
    let before = target().await;
    assert!(!before.1);
    let permits = world.admit(destination).await;
    assert_eq!(permits.len(), 5);
    let on =
        format!("update destinations set handshake = 'cloud_events' where id = '{destination}'");
    world.sql(&on).await;
    assert_eq!(world.admit(destination).await, []);
    assert_eq!(world.states(destination).await, [AttemptState::Waiting; 5]);
    let asking = target().await;
    assert!(
        asking.1 && asking.0 > before.0,
        "workers know it by the epoch"
    );
    // What is set already begins nothing anew.
    let [question] = &take(world).await[..] else {
        panic!("one question");
    };
    record(world, question, &per_minute(4)).await;
    world.sql(&on).await;
    assert_eq!(in_force(world, destination).await, Some(4));

    let none = DestinationChange {
        handshake: Some(Handshake::None),
        ..DestinationChange::default()
    };
    change(world, destination, none).await;
    assert_eq!(view(world, destination).await, off);
    assert!(!target().await.1);
    assert_eq!(world.admit(destination).await.len(), 5);
    let late = record(world, question, &no()).await;
    assert_eq!(late, HandshakeRecorded::default());
    let nonsense = format!("update destinations set handshake = 'x' where id = '{destination}'");
    let refused = world.refused_sql(&nonsense).await;
    assert!(
        refused.contains("destinations_check_handshake"),
        "{refused}"
    );
}

/// Whoever asked and died is not waited for; and its owner need not wait for its time.
pub async fn it_is_asked_again_in_time_or_at_once(world: &World) {
    let destination = asking(world).await;
    assert_eq!(take(world).await.len(), 1);
    let lapse = ["asking_until = 'epoch'", "asking_until = 0"]
        .map(|set| format!("update handshakes set {set} where destination_id = '{destination}'"));
    world.either_sql([&lapse[0], &lapse[1]]).await;
    let [question] = &take(world).await[..] else {
        panic!("one question");
    };
    record(world, question, &no()).await;
    assert_eq!(take(world).await, [], "in a minute");
    let ask = world.catalog.ask_now(DEFAULT_TENANT, destination);
    ask.await.unwrap();
    assert_eq!(take(world).await, std::slice::from_ref(question));
}

/// Nobody asks for what takes nothing, until somebody resumes it.
pub async fn what_is_disabled_or_deleted_is_not_asked(world: &World) {
    let destination = asking(world).await;
    let disable = format!("update destinations set state = 'disabled' where id = '{destination}'");
    world.sql(&disable).await;
    assert_eq!(take(world).await, []);
    let resumed = world.health().resume(DEFAULT_TENANT, destination).await;
    resumed.unwrap();
    let [question] = &take(world).await[..] else {
        panic!("one question");
    };
    assert_eq!(world.admit(destination).await, []);
    let deleted = (world.catalog).delete_destination(DEFAULT_TENANT, destination);
    deleted.await.unwrap();
    let late = record(world, question, &per_minute(60)).await;
    assert_eq!(late, HandshakeRecorded::default());
    assert_eq!(take(world).await, []);
}

/// Those that have waited longest, up to so many.
pub async fn questions_are_taken_in_turn(world: &World) {
    let mut all = [
        asking(world).await,
        asking(world).await,
        asking(world).await,
    ];
    let first = world
        .handshakes
        .take_handshakes(None, 2)
        .await
        .unwrap()
        .taken;
    let rest = take(world).await;
    assert_eq!((first.len(), rest.len()), (2, 1));
    let mut taken: Vec<_> = first
        .iter()
        .chain(&rest)
        .map(|one| one.destination)
        .collect();
    taken.sort_unstable();
    all.sort_unstable();
    assert_eq!(taken, all, "each of them once");
}

/// So many receivers of each of as many new tenants, in the order of their ids.
async fn tenants_that_ask<const N: usize>(world: &World, receivers: [u32; N]) -> [TenantId; N] {
    let mut tenants = [DEFAULT_TENANT; N];
    for (tenant, receivers) in tenants.iter_mut().zip(receivers) {
        *tenant = new_tenant(world).await;
        for _ in 0..receivers {
            let builder = world.destination().handshake(Handshake::CloudEvents);
            builder.create_for(*tenant).await;
        }
    }
    tenants
}

/// Whose receivers are asked then, and whose turn was the last.
async fn turns(
    world: &World,
    after: Option<TenantId>,
    limit: u32,
) -> (Vec<TenantId>, Option<TenantId>) {
    let taken = world
        .handshakes
        .take_handshakes(after, limit)
        .await
        .unwrap();
    let tenants = taken.taken.iter().map(|one| one.tenant);
    (tenants.collect(), taken.turn)
}

/// However many of one tenant's are due: it has so many asked at once, the others have their
/// turns, and whose turn was the last comes after everybody else.
pub async fn tenants_take_turns_to_be_asked(world: &World) {
    let [many, second, third] = tenants_that_ask(world, [9, 1, 1]).await;
    let taken = turns(world, Some(second), 2).await;
    assert_eq!(taken, (vec![third, many], Some(many)));
    let taken = turns(world, Some(many), 9).await;
    assert_eq!(taken, (vec![second, many, many, many], Some(many)));
    let none = turns(world, None, 9).await;
    assert_eq!(none, (vec![], None), "four of it are asked");
}

/// They have the turns of their tenant, who else would have all of them.
pub async fn those_that_are_disabled_hold_up_no_other_tenant(world: &World) {
    let [disabled, other] = tenants_that_ask(world, [9, 1]).await;
    let disable =
        format!("update destinations set state = 'disabled' where tenant_id = '{disabled}'");
    world.sql(&disable).await;
    assert_eq!(turns(world, None, 2).await, (vec![], Some(disabled)));
    let taken = turns(world, Some(disabled), 2).await;
    assert_eq!(taken, (vec![other], Some(disabled)));
}

/// Another tenant's share counts it, once it is that tenant's.
pub async fn one_that_moves_is_asked_for_its_new_tenant(world: &World) {
    let destination = asking(world).await;
    let tenant = new_tenant(world).await;
    let moved =
        format!("update destinations set tenant_id = '{tenant}' where id = '{destination}'");
    world.sql(&moved).await;
    assert_eq!(take(world).await[0].tenant, tenant);
}

/// Nobody else's.
pub async fn handshakes_are_the_tenants(world: &World) {
    let destination = asking(world).await;
    let stranger = TenantId(world.id());
    let seen = world.catalog.handshake(stranger, destination).await;
    assert!(matches!(seen, Err(CatalogError::NotFound("destination"))));
    let asked = world.catalog.ask_now(stranger, destination).await;
    assert!(matches!(asked, Err(CatalogError::NotFound("destination"))));
    let standing = view(world, destination).await.standing.unwrap();
    assert_eq!(standing.next_ask_at, Timestamp::from_micros(0));
}
