//! Limit groups: what several destinations may start together.

use std::time::Duration;

use domain::admission::Blocked;
use domain::ids::{DestinationId, TenantId};
use domain::limit_group::{GroupLimits, GroupName};
use domain::permit::Permit;
use domain::share::Room;
use domain::time::Timestamp;
use engine::ports::{
    CatalogError, ClaimAnswer, DEFAULT_TENANT, DestinationChange, Run, RunResult, Sweep,
};

use super::World;
use super::world::most_in_any;

fn name(name: &str) -> GroupName {
    name.parse().unwrap()
}

fn per_second(max: u32) -> GroupLimits {
    GroupLimits {
        per_second: Some(max),
        ..GroupLimits::default()
    }
}

/// A group, and members of it without limits of their own and with work.
async fn group_of(world: &World, members: usize, limits: GroupLimits) -> Vec<DestinationId> {
    let acme = name("acme");
    (world.catalog)
        .put_limit_group(DEFAULT_TENANT, &acme, &limits)
        .await
        .unwrap();
    let mut all = Vec::new();
    for _ in 0..members {
        let member = world.destination().unlimited().group(&acme).create().await;
        world.accept(member, 20).await;
        all.push(member);
    }
    all
}

/// One batch of runs: the permits of each.
async fn admit(world: &World, members: &[DestinationId]) -> Vec<(Vec<Permit>, Option<Blocked>)> {
    let run = |destination: &DestinationId| Run {
        destination: *destination,
        republish: false,
    };
    let runs: Vec<Run> = members.iter().map(run).collect();
    let admitted = (world.store.admit(&runs, &Room::of(10_000))).await.unwrap();
    (admitted.results.into_iter())
        .map(|result| match result {
            RunResult::Decided {
                permits, blocked, ..
            } => (permits, blocked),
            RunResult::Skipped => (Vec::new(), None),
            RunResult::Gone => panic!("it is there"),
        })
        .collect()
}

async fn change_group(world: &World, member: DestinationId, group: Option<&str>) {
    let change = DestinationChange {
        limit_group: Some(group.map(name)),
        ..DestinationChange::default()
    };
    let changed = (world.catalog).change_destination(DEFAULT_TENANT, member, &change);
    assert_eq!(changed.await.unwrap().limit_group, group.map(name));
}

/// Members that run together share what their group has.
pub async fn members_share_what_their_group_allows(world: &World) {
    let members = group_of(world, 3, per_second(7)).await;
    let given = admit(world, &members).await;
    let mut permits: Vec<usize> = given.iter().map(|(permits, _)| permits.len()).collect();
    permits.sort_unstable();
    assert_eq!(permits, [2, 2, 3]);
    for (_, blocked) in &given {
        assert_eq!(*blocked, Some(Blocked::Group));
    }
    // One that runs later finds what is out, though it is not its own.
    for member in members {
        let (permits, _, blocked) = world.decide(member).await;
        assert_eq!((permits.len(), blocked), (0, Some(Blocked::Group)));
    }
}

/// However its members run, no window of a group holds more than its limit, and they get
/// nearly all of it.
pub async fn no_window_of_a_group_holds_more_than_its_limit(world: &World) {
    let members = group_of(world, 2, per_second(10)).await;
    let worker = world.worker().await;
    let until = world.now().await + Duration::from_millis(2_500);
    while world.now().await < until {
        for member in &members {
            let permits = world.admit(*member).await;
            world.start(worker, &permits).await;
            world.finish(worker, &permits).await;
        }
        world.beat(worker).await;
        world.pass(Duration::from_millis(20)).await;
    }
    let mut starts = Vec::new();
    for member in &members {
        starts.extend(world.starts(*member).await);
    }
    starts.sort_unstable();
    let most = most_in_any(Duration::from_secs(1), &starts);
    assert!(most <= 10, "{most} in a second");
    assert!(starts.len() > 15, "{} in all", starts.len());
}

/// Two schedulers that run different members at once never give the same room twice.
pub async fn members_that_run_at_once_do_not_both_take_what_is_free(world: &World) {
    let members = group_of(world, 2, per_second(6)).await;
    let (one, other) = tokio::join!(admit(world, &members[..1]), admit(world, &members[1..]));
    let permits = one[0].0.len() + other[0].0.len();
    assert_eq!(permits, 6, "{one:?}, {other:?}");
}

/// A member's own limit holds as well.
pub async fn a_member_keeps_its_own_limit(world: &World) {
    let acme = name("acme");
    let limits = per_second(6);
    let put = (world.catalog).put_limit_group(DEFAULT_TENANT, &acme, &limits);
    put.await.unwrap();
    let slow = (world.destination().per_second(2).group(&acme)).create();
    let slow = slow.await;
    world.accept(slow, 20).await;
    let (permits, _, blocked) = world.decide(slow).await;
    assert_eq!((permits.len(), blocked), (2, Some(Blocked::Limit)));
}

/// What one that left started counts as long as it is in a window; what it starts after
/// that does not.
pub async fn what_one_that_left_started_counts(world: &World) {
    let members = group_of(world, 2, per_second(4)).await;
    let (leaves, stays) = (members[0], members[1]);
    let permits = world.admit(leaves).await;
    assert_eq!(permits.len(), 4);
    let worker = world.worker().await;
    world.start(worker, &permits).await;
    world.finish(worker, &permits).await;
    change_group(world, leaves, None).await;
    let (permits, _, blocked) = world.decide(stays).await;
    assert_eq!((permits.len(), blocked), (0, Some(Blocked::Group)));
    // It is on its own now.
    world.pass(Duration::from_millis(10)).await;
    let its_own = world.admit(leaves).await;
    assert_eq!(its_own.len(), 16);
    world.start(worker, &its_own).await;
    world.finish(worker, &its_own).await;
    world.pass(Duration::from_millis(1_050)).await;
    assert_eq!(world.admit(stays).await.len(), 4);
    // The audit sees what was the group's, page by page, and so does the view.
    let (acme, catalog) = (name("acme"), &world.catalog);
    let ever = (Timestamp::from_micros(0), world.now().await);
    let page = async |after| {
        let page = catalog.limit_group_starts(DEFAULT_TENANT, &acme, ever, after, 3);
        page.await.unwrap()
    };
    let first = page(None).await;
    let second = page(first.last().copied()).await;
    assert_eq!((first.len(), second.len()), (3, 1));
    let all: Vec<Timestamp> = first.iter().chain(&second).map(|(at, _)| *at).collect();
    assert_eq!(all, world.starts(leaves).await[..4]);
    world.sql("select * from group_starts_per_second").await;
}

/// A deleted member has left.
pub async fn a_deleted_member_has_left_and_its_starts_count(world: &World) {
    let members = group_of(world, 2, per_second(4)).await;
    let permits = world.admit(members[0]).await;
    let worker = world.worker().await;
    world.start(worker, &permits[..3]).await;
    world.finish(worker, &permits[..3]).await;
    let deleted = (world.catalog).delete_destination(DEFAULT_TENANT, members[0]);
    deleted.await.unwrap();
    let acme = name("acme");
    let group = (world.catalog).limit_group(DEFAULT_TENANT, &acme);
    assert_eq!(group.await.unwrap().members, [members[1]]);
    // The permit that was out is free, the three that started are not.
    assert_eq!(world.admit(members[1]).await.len(), 1);
}

/// Whoever joins gives back what it has out, and what it started counts.
pub async fn one_that_joins_gives_its_permits_back(world: &World) {
    let members = group_of(world, 1, per_second(4)).await;
    let joins = world.destination().unlimited().create().await;
    world.accept(joins, 20).await;
    let permits = world.admit(joins).await;
    let worker = world.worker().await;
    world.start(worker, &permits[..3]).await;
    world.finish(worker, &permits[..3]).await;
    change_group(world, joins, Some("acme")).await;
    let claims = world.claim(worker, &permits[3..4]).await;
    assert_eq!(claims.answers, [ClaimAnswer::Refused]);
    world.pass(Duration::from_millis(10)).await;
    assert_eq!(world.admit(joins).await.len(), 1);
    assert_eq!(world.admit(members[0]).await.len(), 0);
}

/// A cut by one statement is in force at once, for all members.
pub async fn a_cut_of_a_group_revokes_what_its_members_have_out(world: &World) {
    let members = group_of(world, 2, per_second(8)).await;
    let given = admit(world, &members).await;
    world
        .sql("update limit_groups set limit_per_second = 2 where name = 'acme'")
        .await;
    let worker = world.worker().await;
    for (permits, _) in &given {
        assert_eq!(permits.len(), 4);
        let claims = world.claim(worker, permits).await;
        assert_eq!(claims.answers, vec![ClaimAnswer::Refused; 4]);
    }
    world.pass(Duration::from_millis(10)).await;
    let given = admit(world, &members).await;
    let permits: usize = given.iter().map(|(permits, _)| permits.len()).sum();
    assert_eq!(permits, 2);
    // A raise takes nothing away.
    world
        .sql("update limit_groups set limit_per_second = 5 where name = 'acme'")
        .await;
    for (permits, _) in &given {
        let claims = world.claim(worker, permits).await;
        let started = |answer: &ClaimAnswer| matches!(answer, ClaimAnswer::Started(_));
        assert!(claims.answers.iter().all(started), "{:?}", claims.answers);
    }
    let given = admit(world, &members).await;
    let permits: usize = given.iter().map(|(permits, _)| permits.len()).sum();
    assert_eq!(permits, 3);
    let now = world.now().await + Duration::from_secs(1);
    let acme = name("acme");
    let past =
        (world.catalog).limit_group_past(DEFAULT_TENANT, &acme, (Timestamp::from_micros(0), now));
    let past = past.await.unwrap();
    let allowed: Vec<_> = past.allowed.iter().map(|(_, limits)| *limits).collect();
    assert_eq!(allowed, [8, 2, 5].map(per_second));
    assert_eq!(past.members.len(), 2);
}

/// 0 pauses all members, and whatever raises it wakes them.
pub async fn a_group_of_zero_pauses_its_members(world: &World) {
    let members = group_of(world, 1, per_second(0)).await;
    let (permits, _, blocked) = world.decide(members[0]).await;
    assert_eq!((permits.len(), blocked), (0, Some(Blocked::Paused)));
    world
        .sql("update limit_groups set limit_per_second = null, limit_per_hour = 3")
        .await;
    let sweep = Sweep {
        after: None,
        limit: 100,
        overdue: Duration::from_secs(60),
        everything: false,
        only_marks: true,
    };
    let marks = world.store.sweep(&sweep).await.unwrap().marks;
    assert!(
        marks.iter().any(|mark| mark.destination == members[0]),
        "{marks:?}"
    );
    assert_eq!(world.admit(members[0]).await.len(), 3);
}

/// A group is created, read, changed and deleted, by its tenant alone.
pub async fn groups_are_the_tenants(world: &World) {
    let catalog = &world.catalog;
    let acme = name("acme");
    let members = group_of(world, 1, per_second(4)).await;
    let other = TenantId(world.id());
    let tenant = format!("insert into tenants (id, name, tier) values ('{other}', 'x', 'free')");
    world.sql(&tenant).await;
    let is_none = |error: CatalogError| matches!(error, CatalogError::NotFound("limit group"));
    assert!(is_none(
        catalog.limit_group(other, &acme).await.unwrap_err()
    ));
    assert_eq!(catalog.limit_groups(other, None, 10).await.unwrap(), []);
    let deleted = catalog.delete_limit_group(other, &acme).await;
    assert!(is_none(deleted.unwrap_err()));
    // Nobody joins the group of another.
    let mut stranger = world.destination().unlimited().group(&acme).build();
    let refused = catalog.create_destination(other, &stranger).await;
    assert!(
        matches!(&refused, Err(CatalogError::Invalid { field, .. }) if field == "limit_group"),
        "{refused:?}"
    );
    stranger.limit_group = None;
    catalog.create_destination(other, &stranger).await.unwrap();
    let change = DestinationChange {
        limit_group: Some(Some(acme.clone())),
        ..DestinationChange::default()
    };
    let refused = (catalog.change_destination(other, stranger.id, &change)).await;
    assert!(
        matches!(&refused, Err(CatalogError::Invalid { field, .. }) if field == "limit_group"),
        "{refused:?}"
    );
    let page = catalog.limit_groups(DEFAULT_TENANT, None, 10);
    let page = page.await.unwrap();
    assert_eq!((page.len(), &page[0].members), (1, &members));
    let after = catalog.limit_groups(DEFAULT_TENANT, Some(&acme), 10);
    assert_eq!(after.await.unwrap(), []);
    let kept = catalog.delete_limit_group(DEFAULT_TENANT, &acme).await;
    assert!(matches!(kept, Err(CatalogError::Conflict(_))), "{kept:?}");
    change_group(world, members[0], None).await;
    let gone = catalog.delete_limit_group(DEFAULT_TENANT, &acme);
    gone.await.unwrap();
    let gone = catalog.limit_group(DEFAULT_TENANT, &acme).await;
    assert!(is_none(gone.unwrap_err()));
}

/// A run of a member reads what each of them uses, so there are not many.
pub async fn a_group_has_so_many_members_and_no_more(world: &World) {
    let members = group_of(world, 1, per_second(4)).await;
    let past = "insert into limit_group_members
        (tenant_id, limit_group, destination_id, joined_at, left_at)";
    let most = domain::limit_group::MAX_MEMBERS - 1;
    for _ in 0..most {
        let id = world.id();
        let row = format!(
            "{past} select tenant_id, limit_group, '{id}', joined_at, null
            from limit_group_members where destination_id = '{}'",
            members[0]
        );
        world.sql(&row).await;
    }
    let another = world.destination().group(&name("acme")).build();
    let refused = (world.catalog).create_destination(DEFAULT_TENANT, &another);
    let refused = refused.await;
    assert!(
        matches!(&refused, Err(CatalogError::Invalid { field, .. }) if field == "limit_group"),
        "{refused:?}"
    );
}
