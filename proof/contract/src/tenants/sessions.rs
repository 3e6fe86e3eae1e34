//! Sessions of the dashboard, and the links that open them.

use std::time::Duration;

use domain::access::{KeyId, LinkId, Scope, Scopes};
use domain::ids::TenantId;

use super::{TenantWorld, not_found};
use engine::ports::{BehindSession, DEFAULT_TENANT, NewKey, NewSession, SessionKind};

/// Longer than a test takes.
const HOUR: Duration = Duration::from_secs(3_600);

pub(super) fn begun(digest: u8, kind: SessionKind, tenant: TenantId) -> NewSession {
    NewSession {
        digest: [digest; 32],
        kind,
        tenant,
        behind: BehindSession::Configured([7; 32]),
        scopes: [Scope::Read].into_iter().collect(),
        good_for: HOUR,
        name: String::new(),
        opened_by: None,
    }
}

/// What a link opens.
fn opened(digest: u8, link: &NewSession) -> NewSession {
    NewSession {
        opened_by: Some(link.digest),
        ..begun(digest, SessionKind::Opened, link.tenant)
    }
}

async fn is_good(world: &TenantWorld, session: &NewSession) -> bool {
    let found = world.sessions.session(session.digest).await;
    found.unwrap().is_some()
}

async fn begin(world: &TenantWorld, session: &NewSession) {
    world.sessions.begin_session(session).await.unwrap();
}

/// Of every kind, on either kind of key, with exactly its scopes.
pub async fn a_session_is_what_it_was_begun_as(world: &TenantWorld) {
    let tenant = world.tenant("free").await.id;
    let key = BehindSession::Key(KeyId(u64::MAX));
    let new_key = NewKey {
        id: KeyId(u64::MAX),
        name: String::new(),
        digest: [1; 32],
        scopes: Scopes::ALL,
        expires_in: None,
    };
    let made = world.keys.create_key(DEFAULT_TENANT, &new_key).await;
    made.unwrap();
    let configured = BehindSession::Configured(std::array::from_fn(|at| u8::try_from(at).unwrap()));
    let all_but_read = [Scope::Ingest, Scope::Manage, Scope::Admin];
    for (digest, (kind, behind, scopes)) in [
        (SessionKind::Key, key, Scopes::ALL),
        (
            SessionKind::Link,
            configured,
            all_but_read.into_iter().collect(),
        ),
        (
            SessionKind::Opened,
            key,
            [Scope::Read].into_iter().collect(),
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let new = NewSession {
            behind,
            scopes,
            ..begun(u8::try_from(digest).unwrap(), kind, tenant)
        };
        let before = world.now().await;
        let until = world.sessions.begin_session(&new).await.unwrap();
        assert!(until >= before + HOUR && until <= world.now().await + HOUR);
        let found = world.sessions.session(new.digest).await.unwrap().unwrap();
        assert_eq!((found.kind, found.tenant), (kind, tenant));
        assert_eq!((found.behind, found.scopes), (behind, scopes));
        assert!(found.left <= HOUR && !found.left.is_zero());
    }
    let nobody = world.sessions.session([99; 32]).await.unwrap();
    assert_eq!(nobody, None);
}

/// To the microsecond.
pub async fn a_session_is_over_by_the_stores_clock(world: &TenantWorld) {
    let new = NewSession {
        good_for: Duration::from_millis(300),
        ..begun(1, SessionKind::Key, DEFAULT_TENANT)
    };
    let until = world.sessions.begin_session(&new).await.unwrap();
    assert!(is_good(world, &new).await);
    world.pass_until(until).await;
    assert!(!is_good(world, &new).await);
}

/// A link and what it opened, too; those on another key go on.
pub async fn a_session_ends_with_its_key(world: &TenantWorld) {
    let mut sessions = Vec::new();
    for id in [1_u8, 2] {
        let key = NewKey {
            id: KeyId(u64::from(id)),
            name: String::new(),
            digest: [id; 32],
            scopes: Scopes::ALL,
            expires_in: None,
        };
        world.keys.create_key(DEFAULT_TENANT, &key).await.unwrap();
        let behind = BehindSession::Key(key.id);
        for kind in [SessionKind::Key, SessionKind::Link] {
            let digest = id * 10 + u8::try_from(kind.as_str().len()).unwrap();
            let new = NewSession {
                behind,
                ..begun(digest, kind, DEFAULT_TENANT)
            };
            begin(world, &new).await;
            sessions.push(new);
        }
    }
    let [one_key, one_link, two_key, two_link] = &sessions[..] else {
        panic!("four were begun");
    };
    let key = world.keys.revoke_key(DEFAULT_TENANT, KeyId(1)).await;
    key.unwrap();
    assert!(!is_good(world, one_key).await && !is_good(world, one_link).await);
    assert!(is_good(world, two_key).await && is_good(world, two_link).await);
    let left = world.sessions.links(DEFAULT_TENANT, 10).await.unwrap();
    let left: Vec<_> = left.iter().map(|link| link.id).collect();
    assert_eq!(left, [LinkId::of(two_link.digest)]);
}

/// It shows another tenant's pages; ending it again changes nothing.
pub async fn a_session_ends_once_and_moves(world: &TenantWorld) {
    let tenant = world.tenant("free").await.id;
    let (one, other) = (
        begun(1, SessionKind::Key, DEFAULT_TENANT),
        begun(2, SessionKind::Key, DEFAULT_TENANT),
    );
    begin(world, &one).await;
    begin(world, &other).await;
    let moved = world.sessions.move_session(one.digest, tenant).await;
    moved.unwrap();
    for (session, shows) in [(&one, tenant), (&other, DEFAULT_TENANT)] {
        let found = world.sessions.session(session.digest).await.unwrap();
        assert_eq!(found.unwrap().tenant, shows);
    }
    for _ in 0..2 {
        world.sessions.end_session(one.digest).await.unwrap();
        assert!(!is_good(world, &one).await && is_good(world, &other).await);
    }
    world.sessions.move_session([99; 32], tenant).await.unwrap();
}

/// However many come with it at the same moment, and not when its time is over.
pub async fn what_signs_in_once_does_so_once(world: &TenantWorld) {
    let once = begun(1, SessionKind::Once, DEFAULT_TENANT);
    begin(world, &once).await;
    let late = NewSession {
        good_for: Duration::from_millis(300),
        ..begun(2, SessionKind::Once, DEFAULT_TENANT)
    };
    let until = world.sessions.begin_session(&late).await.unwrap();
    let link = begun(3, SessionKind::Link, DEFAULT_TENANT);
    begin(world, &link).await;
    assert_eq!(
        world
            .sessions
            .links(DEFAULT_TENANT, 10)
            .await
            .unwrap()
            .len(),
        1
    );

    let signed_in: Vec<NewSession> = (10..14)
        .map(|digest| begun(digest, SessionKind::Key, DEFAULT_TENANT))
        .collect();
    let [first, second, third, fourth] = &signed_in[..] else {
        panic!("there are four");
    };
    let using = async |new| world.sessions.use_once(once.digest, new).await.unwrap();
    let used = tokio::join!(using(first), using(second), using(third));
    let used = [used.0, used.1, used.2];
    assert_eq!(used.iter().filter(|used| **used).count(), 1, "{used:?}");
    for (session, used) in [first, second, third].into_iter().zip(used) {
        assert_eq!(is_good(world, session).await, used);
    }
    assert!(!is_good(world, &once).await);
    assert!(!using(fourth).await);
    // Neither what is over, nor what is something else.
    world.pass_until(until).await;
    for digest in [late.digest, link.digest, first.digest, [99; 32]] {
        let used = world.sessions.use_once(digest, fourth).await;
        assert!(!used.unwrap() && !is_good(world, fourth).await);
    }
    assert!(is_good(world, &link).await);
}

/// As it was made, the newest first, and no session beside it.
pub async fn a_link_is_listed_while_it_is_good(world: &TenantWorld) {
    let tenant = world.tenant("free").await.id;
    let mut made = Vec::new();
    for (digest, good_for) in [(1, HOUR), (2, Duration::from_millis(300)), (3, HOUR)] {
        let new = NewSession {
            name: format!("link {digest}"),
            good_for,
            scopes: [Scope::Read, Scope::Manage].into_iter().collect(),
            ..begun(digest, SessionKind::Link, tenant)
        };
        let until = world.sessions.begin_session(&new).await.unwrap();
        made.insert(0, (new, until));
        world.pass(Duration::from_millis(2)).await;
    }
    begin(world, &opened(4, &made[0].0)).await;
    begin(world, &begun(5, SessionKind::Key, tenant)).await;
    begin(world, &begun(6, SessionKind::Link, DEFAULT_TENANT)).await;
    world.pass_until(made[1].1).await;
    let listed = world.sessions.links(tenant, 10).await.unwrap();
    assert_eq!(listed.len(), 2, "{listed:?}");
    for (link, (new, until)) in listed.iter().zip([&made[0], &made[2]]) {
        assert_eq!(link.id, LinkId::of(new.digest));
        assert_eq!((link.tenant, &link.name), (tenant, &new.name));
        assert_eq!((link.behind, link.scopes), (new.behind, new.scopes));
        assert_eq!((link.expires_at, link.created_at + HOUR), (*until, *until));
    }
    let first = world.sessions.links(tenant, 1).await.unwrap();
    assert_eq!(first, listed[..1]);
}

/// And with nothing else.
pub async fn a_link_ends_with_all_that_it_opened(world: &TenantWorld) {
    let tenant = world.tenant("free").await.id;
    let (one, other) = (
        begun(1, SessionKind::Link, tenant),
        begun(2, SessionKind::Link, tenant),
    );
    begin(world, &one).await;
    begin(world, &other).await;
    let ends = [opened(11, &one), opened(12, &one)];
    let stays = [opened(21, &other), begun(22, SessionKind::Key, tenant)];
    for session in ends.iter().chain(&stays) {
        begin(world, session).await;
        assert!(is_good(world, session).await);
    }
    let id = LinkId::of(one.digest);
    world.sessions.end_link(tenant, id).await.unwrap();
    for session in ends.iter().chain([&one]) {
        assert!(!is_good(world, session).await);
    }
    for session in stays.iter().chain([&other]) {
        assert!(is_good(world, session).await);
    }
    not_found(world.sessions.end_link(tenant, id).await);
}

/// Nor can a session be ended as if it were one.
pub async fn another_tenants_link_cannot_be_ended(world: &TenantWorld) {
    let (ours, theirs) = (world.tenant("free").await.id, world.tenant("free").await.id);
    let link = begun(1, SessionKind::Link, ours);
    let session = begun(2, SessionKind::Key, ours);
    begin(world, &link).await;
    begin(world, &session).await;
    let end = async |tenant, digest| world.sessions.end_link(tenant, LinkId::of(digest)).await;
    not_found(end(theirs, link.digest).await);
    not_found(end(ours, session.digest).await);
    assert!(is_good(world, &link).await && is_good(world, &session).await);
}

/// Whoever opens it has seen it before it ended, and begins afterwards.
pub async fn what_a_link_opens_while_it_ends_is_over(world: &TenantWorld) {
    let link = begun(1, SessionKind::Link, DEFAULT_TENANT);
    begin(world, &link).await;
    let id = LinkId::of(link.digest);
    world.sessions.end_link(DEFAULT_TENANT, id).await.unwrap();
    let late = opened(2, &link);
    begin(world, &late).await;
    assert!(!is_good(world, &late).await);
}
