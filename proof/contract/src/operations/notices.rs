//! People are told: an address has its notices until a digest of them was sent,
//! whoever dies, and one at a time.

use std::time::Duration;

use domain::ids::{NoticeAddressId, SecretId, TenantId};
use domain::notices::{NoticeAddress, NoticeForm};
use domain::operations::{OperationalScope, OperationalType};

use super::{OperationsWorld, book, raise, relay, stranger};
use engine::ports::{
    CatalogError, ClaimedDigest, DEFAULT_TENANT, MAX_DIGEST, MAX_LINES, MAX_NOTICE_ADDRESSES,
    NewNoticeAddress, Notices, Resealed, Sealed, notice_place,
};

/// What a digest is leased for.
const LEASE: Duration = Duration::from_secs(60);

/// Between two messages.
const EVERY: Duration = Duration::from_secs(600);

fn new(world: &OperationsWorld) -> NewNoticeAddress {
    NewNoticeAddress {
        id: NoticeAddressId(world.id()),
        scope: OperationalScope::Tenant,
        form: NoticeForm::Email,
        shown: "ops@example.com".to_owned(),
        sealed: None,
        event_types: Vec::new(),
        every: EVERY,
    }
}

async fn add(world: &OperationsWorld, tenant: TenantId, new: &NewNoticeAddress) -> NoticeAddress {
    let added = book(world).register_address(tenant, new).await;
    added.unwrap()
}

fn notices(world: &OperationsWorld) -> &dyn Notices {
    world.notices.as_ref()
}

async fn claim(world: &OperationsWorld) -> Option<ClaimedDigest> {
    notices(world)
        .claim_digest(&NoticeForm::ALL, LEASE)
        .await
        .unwrap()
}

/// So many news of the default tenant, relayed.
async fn news(world: &OperationsWorld, count: u128) {
    for number in 0..count {
        raise(world, stranger(number).0, DEFAULT_TENANT).await;
    }
    while relay(world).await.more {}
}

/// As if so much time had passed for this column, which no store's clock can be
/// made to believe.
async fn pass(world: &OperationsWorld, (table, column): (&str, &str), time: Duration) {
    let time = match world.is_postgres() {
        true => format!("interval '{} seconds'", time.as_secs()),
        false => time.as_micros().to_string(),
    };
    world
        .sql(&format!("update {table} set {column} = {column} - {time}"))
        .await;
}

/// When an address is due.
const DUE: (&str, &str) = ("notice_addresses", "not_before");

/// The first at once; what follows together, after the time that the address
/// asks for.
pub async fn the_first_comes_at_once_and_the_rest_in_one(world: &OperationsWorld) {
    let address = add(world, DEFAULT_TENANT, &new(world)).await;
    assert_eq!(claim(world).await, None, "there is nothing to tell");
    news(world, 1).await;
    let first = claim(world).await.unwrap();
    assert_eq!(first.address, address);
    assert_eq!((first.failures, first.digest.total()), (0, 1));
    assert_eq!(first.digest.newest.len(), 1);
    assert_eq!(first.digest.newest[0].event_type, "breaker_opened");
    assert_eq!(first.digest.newest[0].destination, Some(stranger(0).0));
    notices(world).digest_told(first.lease).await.unwrap();
    news(world, 30).await;
    assert_eq!(claim(world).await, None, "it was told just now");
    pass(world, DUE, EVERY).await;
    let second = claim(world).await.unwrap();
    assert_eq!(second.digest.counts, [("breaker_opened".to_owned(), 30)]);
    let newest: Vec<_> = second.digest.newest.iter().map(|line| line.id).collect();
    assert_eq!(newest.len() as u32, MAX_LINES);
    assert!(newest.is_sorted_by(|a, b| a > b), "{newest:?}");
    assert!(!second.digest.more);
    notices(world).digest_told(second.lease).await.unwrap();
    pass(world, DUE, EVERY).await;
    assert_eq!(claim(world).await, None);
}

/// Who sent and died before it was noted leaves it to the next, with what came
/// since; and what the dead one still says is not heard.
pub async fn a_digest_is_one_senders_until_its_lease_ends(world: &OperationsWorld) {
    add(world, DEFAULT_TENANT, &new(world)).await;
    news(world, 1).await;
    let (one, other) = tokio::join!(claim(world), claim(world));
    let first = one.clone().or(other.clone()).unwrap();
    assert!(one.is_none() || other.is_none(), "one of the two");
    news(world, 1).await;
    pass(world, DUE, LEASE).await;
    let second = claim(world).await.unwrap();
    assert_eq!(second.digest.total(), 2);
    assert!(second.lease.number > first.lease.number);
    notices(world).digest_told(first.lease).await.unwrap();
    let hour = Duration::from_secs(3_600);
    notices(world)
        .digest_untold(first.lease, hour)
        .await
        .unwrap();
    pass(world, DUE, LEASE).await;
    let third = claim(world).await.unwrap();
    assert_eq!((third.digest.total(), third.failures), (2, 0));
    // What comes while it is sent is the next one's.
    news(world, 1).await;
    notices(world).digest_told(third.lease).await.unwrap();
    pass(world, DUE, EVERY).await;
    assert_eq!(claim(world).await.unwrap().digest.total(), 1);
}

/// Nothing is over until it was told.
pub async fn what_could_not_be_told_is_tried_again_later(world: &OperationsWorld) {
    add(world, DEFAULT_TENANT, &new(world)).await;
    news(world, 1).await;
    let pause = Duration::from_secs(30);
    for failures in 0..3 {
        let claimed = claim(world).await.unwrap();
        assert_eq!((claimed.failures, claimed.digest.total()), (failures, 1));
        notices(world)
            .digest_untold(claimed.lease, pause)
            .await
            .unwrap();
        assert_eq!(claim(world).await, None);
        pass(world, DUE, pause).await;
    }
    let claimed = claim(world).await.unwrap();
    notices(world).digest_told(claimed.lease).await.unwrap();
    news(world, 1).await;
    pass(world, DUE, EVERY).await;
    assert_eq!(claim(world).await.unwrap().failures, 0, "it works again");
}

/// A process claims what it can send: nobody else's digest waits for its lease.
pub async fn only_the_named_forms_are_claimed(world: &OperationsWorld) {
    add(world, DEFAULT_TENANT, &new(world)).await;
    news(world, 1).await;
    for forms in [&[][..], &[NoticeForm::Slack]] {
        let claimed = notices(world).claim_digest(forms, LEASE).await.unwrap();
        assert_eq!(claimed, None, "{forms:?}");
    }
    let mail = [NoticeForm::Email];
    let claimed = notices(world).claim_digest(&mail, LEASE).await.unwrap();
    assert_eq!(claimed.unwrap().digest.total(), 1);
}

/// However many wait: in steps, and the young ones stay.
pub async fn what_is_too_old_is_dropped(world: &OperationsWorld) {
    add(world, DEFAULT_TENANT, &new(world)).await;
    news(world, 5).await;
    let day = domain::notices::KEPT;
    pass(world, ("notices", "created_at"), day).await;
    news(world, 2).await;
    let dropped = async |limit| world.operations.drop_notices(day, limit).await.unwrap();
    assert_eq!(dropped(3).await, 3);
    assert_eq!(dropped(3).await, 2);
    assert_eq!(dropped(3).await, 0);
    assert_eq!(claim(world).await.unwrap().digest.total(), 2);
}

/// Of its tenant or of all, and of its types; never of what came before it.
pub async fn an_address_is_told_what_it_is_registered_for(world: &OperationsWorld) {
    let (_, other) = stranger(1);
    news(world, 1).await;
    let typed = NewNoticeAddress {
        event_types: vec![OperationalType::DeadLetters],
        ..new(world)
    };
    add(world, DEFAULT_TENANT, &typed).await;
    let own = add(world, DEFAULT_TENANT, &new(world)).await;
    let all = NewNoticeAddress {
        scope: OperationalScope::Installation,
        ..new(world)
    };
    let all = add(world, DEFAULT_TENANT, &all).await;
    news(world, 1).await;
    raise(world, stranger(9).0, other).await;
    relay(world).await;
    let mut told = Vec::new();
    while let Some(claimed) = claim(world).await {
        told.push((claimed.address.id, claimed.digest.total()));
    }
    told.sort_unstable();
    let mut expected = [(own.id, 1), (all.id, 2)];
    expected.sort_unstable();
    assert_eq!(told, expected);
}

/// A digest is bounded, and says that more wait.
pub async fn a_flood_is_cut_and_the_rest_waits(world: &OperationsWorld) {
    let address = add(world, DEFAULT_TENANT, &new(world)).await;
    news(world, 1).await;
    let id = address.id;
    let more = i64::from(MAX_DIGEST);
    let series = match world.is_postgres() {
        true => format!("select generate_series(1, {more}) as n"),
        false => format!(
            "with recursive s (n) as (select 1 union all select n + 1 from s where n < {more})
            select n from s"
        ),
    };
    let flood = format!(
        "insert into operational_events
            (event_type, destination_id, tenant_id, details, created_at, relayed_at)
        select 'dead_letters', o.destination_id, o.tenant_id, '{{}}', o.created_at, o.created_at
        from operational_events o, ({series}) as s where o.event_type = 'breaker_opened'"
    );
    world.sql(&flood).await;
    world
        .sql(&format!(
            "insert into notices (address_id, operational_event_id, created_at)
            select '{id}', id, created_at from operational_events
            where event_type = 'dead_letters'"
        ))
        .await;
    let first = claim(world).await.unwrap();
    assert_eq!(first.digest.total(), u64::from(MAX_DIGEST));
    assert!(first.digest.more);
    notices(world).digest_told(first.lease).await.unwrap();
    pass(world, DUE, EVERY).await;
    let second = claim(world).await.unwrap();
    assert_eq!((second.digest.total(), second.digest.more), (1, false));
}

/// They are the tenant's, so many, and go with all that waits for them.
pub async fn addresses_are_the_tenants(world: &OperationsWorld) {
    let first = add(world, DEFAULT_TENANT, &new(world)).await;
    for _ in 1..MAX_NOTICE_ADDRESSES {
        add(world, DEFAULT_TENANT, &new(world)).await;
    }
    let refused = book(world)
        .register_address(DEFAULT_TENANT, &new(world))
        .await;
    assert!(
        matches!(&refused, Err(CatalogError::Invalid { field, .. }) if field == "address"),
        "{refused:?}"
    );
    let (_, other) = stranger(1);
    let nobodys = book(world).register_address(other, &new(world)).await;
    assert!(
        matches!(nobodys, Err(CatalogError::NotFound(_))),
        "{nobodys:?}"
    );
    assert_eq!(book(world).addresses(other).await.unwrap(), []);
    let theirs = book(world).remove_address(other, first.id).await;
    assert!(
        matches!(theirs, Err(CatalogError::NotFound(_))),
        "{theirs:?}"
    );

    let list = book(world).addresses(DEFAULT_TENANT).await.unwrap();
    assert_eq!(
        (list.len() as u32, &list[0]),
        (MAX_NOTICE_ADDRESSES, &first)
    );
    news(world, 1).await;
    for one in &list {
        let removed = book(world).remove_address(DEFAULT_TENANT, one.id).await;
        removed.unwrap();
    }
    let again = book(world).remove_address(DEFAULT_TENANT, first.id).await;
    assert!(matches!(again, Err(CatalogError::NotFound(_))), "{again:?}");
    assert_eq!(claim(world).await, None);
    let dropped = world.operations.drop_notices(Duration::ZERO, 100).await;
    assert_eq!(dropped.unwrap(), 0, "nothing is left of them");
}

/// The URL of a webhook is sealed anew as secrets are.
pub async fn a_webhook_is_sealed_anew(world: &OperationsWorld) {
    let sealed = |key: &str, bytes: &'static [u8]| Sealed {
        key: key.to_owned(),
        bytes: bytes.into(),
    };
    let chat = NewNoticeAddress {
        form: NoticeForm::Slack,
        shown: "https://hooks.example.com/…".to_owned(),
        sealed: Some(sealed("old", b"first")),
        ..new(world)
    };
    let address = add(world, DEFAULT_TENANT, &chat).await;
    let secrets = world.secrets.as_ref();
    assert_eq!(
        secrets.keys_in_use().await.unwrap(),
        [("old".to_owned(), 1)]
    );
    let found = secrets.sealed_under_others("new", None, 10).await.unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].place, notice_place(DEFAULT_TENANT, address.id));
    let resealed = Resealed {
        secret: SecretId(address.id.0),
        from: found[0].sealed.clone(),
        to: sealed("new", b"second"),
    };
    for expected in [1, 0] {
        let done = secrets.reseal(std::slice::from_ref(&resealed)).await;
        assert_eq!(done.unwrap(), expected);
    }
    assert_eq!(
        secrets.keys_in_use().await.unwrap(),
        [("new".to_owned(), 1)]
    );
    news(world, 1).await;
    let claimed = claim(world).await.unwrap();
    assert_eq!(claimed.sealed, Some(sealed("new", b"second")));
    let claimed = format!("{claimed:?}");
    assert!(!claimed.contains("second"), "{claimed}");
}
