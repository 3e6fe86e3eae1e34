//! The loop that tells people: sent and ended, failed and tried again, dropped.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use domain::ids::{DestinationId, NoticeAddressId, TenantId};
use domain::notices::{Digest, Line, NoticeAddress, NoticeForm, Written};
use domain::operations::OperationalScope;
use domain::time::Timestamp;
use engine::notices::{NoticesLoop, NoticesOptions};
use engine::ports::{ClaimedDigest, DigestLease, Notices, Post, PostTo, StoreError, Unsent};
use uuid::Uuid;

use crate::support::ms;

/// Gives out these digests, and keeps what became of them.
#[derive(Default)]
struct Fake {
    due: Mutex<Vec<ClaimedDigest>>,
    ended: Mutex<Vec<(i64, Option<Duration>)>>,
    sent: Mutex<Vec<String>>,
    refuses: bool,
    has_no_mail: bool,
}

#[async_trait]
impl Notices for Fake {
    async fn claim_digest(
        &self,
        forms: &[NoticeForm],
        lease: Duration,
    ) -> Result<Option<ClaimedDigest>, StoreError> {
        assert_eq!(lease, ms(9));
        let mut due = self.due.lock().unwrap();
        let at = due
            .iter()
            .rposition(|one| forms.contains(&one.address.form));
        Ok(at.map(|at| due.remove(at)))
    }

    async fn digest_told(&self, lease: DigestLease) -> Result<(), StoreError> {
        self.ended.lock().unwrap().push((lease.number, None));
        Ok(())
    }

    async fn digest_untold(
        &self,
        lease: DigestLease,
        again_in: Duration,
    ) -> Result<(), StoreError> {
        let ended = (lease.number, Some(again_in));
        self.ended.lock().unwrap().push(ended);
        Ok(())
    }
}

#[async_trait]
impl Post for Fake {
    fn forms(&self) -> Vec<NoticeForm> {
        let mail = (!self.has_no_mail).then_some(NoticeForm::Email);
        mail.into_iter().chain([NoticeForm::Slack]).collect()
    }

    async fn send(&self, to: &PostTo, message: &Written) -> Result<(), Unsent> {
        assert!(matches!(to, PostTo::Email(address) if address == "ops@example.com"));
        if self.refuses {
            return Err(Unsent("away".to_owned()));
        }
        self.sent.lock().unwrap().push(message.subject.clone());
        Ok(())
    }
}

fn claimed(number: i64, form: NoticeForm, failures: u32) -> ClaimedDigest {
    let address = NoticeAddressId(Uuid::from_u128(1));
    ClaimedDigest {
        lease: DigestLease { address, number },
        address: NoticeAddress {
            id: address,
            tenant: TenantId(Uuid::from_u128(2)),
            scope: OperationalScope::Tenant,
            form,
            shown: "ops@example.com".to_owned(),
            event_types: Vec::new(),
            every: Duration::from_secs(600),
        },
        sealed: None,
        failures,
        digest: Digest {
            counts: vec![("dead_letters".to_owned(), 1)],
            newest: vec![Line {
                id: number,
                at: Timestamp::from_millis(1),
                event_type: "dead_letters".to_owned(),
                destination: Some(DestinationId(Uuid::from_u128(3))),
                name: format!("shop {number}"),
                tenant: String::new(),
                details: "{}".to_owned(),
            }],
            more: false,
        },
    }
}

async fn tick(fake: &Arc<Fake>) {
    let options = NoticesOptions {
        lease: ms(9),
        at_once: 2,
        batches: 2,
        ..NoticesOptions::default()
    };
    let told = NoticesLoop::new(fake.clone(), fake.clone(), None, options);
    told.tick().await;
}

#[tokio::test]
async fn a_round_tells_so_many_and_ends_what_was_sent() {
    let fake = Arc::new(Fake::default());
    let mail = |number| claimed(number, NoticeForm::Email, 0);
    *fake.due.lock().unwrap() = (1..=5).rev().map(mail).collect();
    tick(&fake).await;
    let ended: Vec<_> = fake.ended.lock().unwrap().clone();
    // One asks whether anybody is due, and then two at once.
    assert_eq!(ended, [1, 2, 3].map(|number| (number, None)));
    assert_eq!(fake.sent.lock().unwrap().len(), 3);
    assert_eq!(
        fake.sent.lock().unwrap()[0],
        "[Paceline] shop 1: dead letters"
    );
    assert_eq!(fake.due.lock().unwrap().len(), 2, "the next round's");
}

#[tokio::test]
async fn what_was_not_sent_is_tried_again_ever_later() {
    let fake = Arc::new(Fake {
        refuses: true,
        ..Fake::default()
    });
    *fake.due.lock().unwrap() = vec![
        claimed(2, NoticeForm::Email, 3),
        claimed(1, NoticeForm::Email, 0),
    ];
    tick(&fake).await;
    let again = |number, seconds| (number, Some(Duration::from_secs(seconds)));
    assert_eq!(*fake.ended.lock().unwrap(), [again(1, 30), again(2, 240)]);
}

/// It has no keys to open a webhook with, or no mail server: another process has, or this
/// one later, and finds it due then.
#[tokio::test]
async fn what_a_process_cannot_send_it_does_not_take() {
    let fake = Arc::new(Fake {
        has_no_mail: true,
        ..Fake::default()
    });
    *fake.due.lock().unwrap() = vec![
        claimed(1, NoticeForm::Slack, 0),
        claimed(2, NoticeForm::Email, 0),
    ];
    tick(&fake).await;
    assert_eq!(fake.due.lock().unwrap().len(), 2);
    assert_eq!(*fake.ended.lock().unwrap(), []);
}
