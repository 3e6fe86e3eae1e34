//! Memory for bodies and for answers: in all, and of one tenant.
//!
//! A body takes room as it comes. An answer takes it when it is made, and holds it until
//! the last byte of it is written or its client has gone: whoever asks for much and reads
//! nothing is refused the next one.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::body::{Body, HttpBody, to_bytes};
use axum::response::Response;
use bytes::Bytes;
use domain::bulkhead::may_have;
use domain::ids::TenantId;

use super::super::problem::Problem;

/// The largest sum of all bodies that are read or worked on at one time.
const BODIES_BYTES: usize = 256 * 1024 * 1024;

/// The largest sum of all answers that are not written yet. The largest single ones, a
/// thousand attempts with what their receivers said, are 10 MiB.
const ANSWERS_BYTES: usize = 128 * 1024 * 1024;

/// A tenant has one of so many parts of it at most, and no more than it leaves free
/// (`domain::bulkhead`): so after three that have a quarter each, the next has half of the
/// rest, and however many read nothing, another finds some.
const PARTS: usize = 4;

/// An answer that is no larger than what a connection buffers anyway.
const SMALL_ANSWER_BYTES: usize = 16 * 1024;

/// What one body takes of the room at least, so that many small ones are bounded
/// as well: 16,384 at once.
const MIN_SHARE_BYTES: usize = 16 * 1024;

/// Memory for bodies, or for answers. What does not fit is refused at once.
pub struct Room {
    most: usize,
    /// What is said when a tenant's part is full, and when all of it is.
    full: [&'static str; 2],
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    all: usize,
    of: HashMap<TenantId, usize>,
}

/// One body's or answer's part of the room, until it is dropped.
pub struct Share {
    room: Arc<Room>,
    tenant: TenantId,
    bytes: usize,
}

/// An answer, and its part of the room.
struct Held {
    bytes: Bytes,
    _share: Share,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Room {
    /// For what clients send.
    #[must_use]
    pub fn of_bodies() -> Self {
        Self {
            most: BODIES_BYTES,
            full: [
                "too many bytes of this tenant are on their way in, or in answers to its changes \
                 that are not read yet; read those first; nothing was written",
                "too many bytes are on their way in, or in answers that are not read yet; \
                 nothing was written",
            ],
            taken: Mutex::default(),
        }
    }

    /// For what clients are answered.
    #[must_use]
    pub fn of_answers() -> Self {
        Self {
            most: ANSWERS_BYTES,
            full: [
                "too many bytes of answers to this tenant are not read yet; read them first, \
                 or ask for less at a time",
                "too many bytes of answers are not read yet; nothing was written",
            ],
            taken: Mutex::default(),
        }
    }

    /// Puts an answer that shows something into the room, until it is written.
    /// What streams is bounded by places of its own.
    pub(crate) async fn hold(
        self: &Arc<Self>,
        tenant: TenantId,
        answer: Response,
    ) -> Result<Response, Problem> {
        let Some(bytes) = large(&answer) else {
            return Ok(answer);
        };
        let share = self.take_for(tenant, bytes)?;
        Ok(held(share, bytes, answer).await)
    }

    /// The same for an answer that says what was done: it is not kept back, but what
    /// comes next has less room.
    pub(crate) async fn hold_anyway(
        self: &Arc<Self>,
        tenant: TenantId,
        answer: Response,
    ) -> Response {
        let Some(bytes) = large(&answer) else {
            return answer;
        };
        let mut share = self.nothing(tenant);
        share.add(&mut self.taken(), bytes);
        held(share, bytes, answer).await
    }

    /// The least share, for a body of which nothing has come.
    pub(super) fn take(self: &Arc<Self>, tenant: TenantId) -> Result<Share, Problem> {
        self.take_for(tenant, MIN_SHARE_BYTES)
    }

    /// The same for one that is no larger than this.
    pub(super) fn take_for(
        self: &Arc<Self>,
        tenant: TenantId,
        bytes: usize,
    ) -> Result<Share, Problem> {
        let mut share = self.nothing(tenant);
        share.hold(bytes)?;
        Ok(share)
    }

    fn nothing(self: &Arc<Self>, tenant: TenantId) -> Share {
        Share {
            room: Arc::clone(self),
            tenant,
            bytes: 0,
        }
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Share {
    /// Makes it large enough for so many bytes.
    pub(super) fn hold(&mut self, bytes: usize) -> Result<(), Problem> {
        let more = bytes.saturating_sub(self.bytes);
        if more == 0 {
            return Ok(());
        }
        let room = Arc::clone(&self.room);
        let mut taken = room.taken();
        let [full_of_tenant, full] = room.full;
        let has = taken.of(self.tenant);
        if has + more > room.most / PARTS {
            return Err(Problem::busy(full_of_tenant));
        }
        // What was done is answered beyond the bound.
        let free = room.most.saturating_sub(taken.all);
        if !may_have(has, more, free) {
            return Err(Problem::overloaded(full));
        }
        self.add(&mut taken, more);
        Ok(())
    }

    fn add(&mut self, taken: &mut Taken, more: usize) {
        taken.all += more;
        *taken.of.entry(self.tenant).or_default() += more;
        self.bytes += more;
    }
}

impl Taken {
    fn of(&self, tenant: TenantId) -> usize {
        self.of.get(&tenant).copied().unwrap_or_default()
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut taken = self.room.taken();
        taken.all -= self.bytes;
        if let Entry::Occupied(mut of) = taken.of.entry(self.tenant) {
            *of.get_mut() -= self.bytes;
            if *of.get() == 0 {
                of.remove();
            }
        }
    }
}

/// The bytes of an answer that is there as a whole, and is not small.
fn large(answer: &Response) -> Option<usize> {
    let bytes = answer.body().size_hint().exact()?;
    usize::try_from(bytes)
        .ok()
        .filter(|bytes| *bytes > SMALL_ANSWER_BYTES)
}

/// The server drops a body when it has taken it, which is long before the last byte is
/// written. So the share goes with the bytes.
async fn held(share: Share, bytes: usize, answer: Response) -> Response {
    let (head, body) = answer.into_parts();
    let body = match to_bytes(body, bytes).await {
        Ok(bytes) => Body::from(Bytes::from_owner(Held {
            bytes,
            _share: share,
        })),
        // What breaks does so for its client, too.
        Err(error) => Body::from_stream(futures_util::stream::iter([Err::<Bytes, _>(error)])),
    };
    Response::from_parts(head, body)
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    const MIB: usize = 1024 * 1024;

    fn tenant(id: u128) -> TenantId {
        TenantId(Uuid::from_u128(id))
    }

    /// As many bodies of so many bytes as there is room for.
    fn fill(room: &Arc<Room>, tenant: TenantId, bytes: usize) -> (Vec<Share>, u16) {
        let mut shares = Vec::new();
        loop {
            let share = room.take(tenant).and_then(|mut share| {
                share.hold(bytes)?;
                Ok(share)
            });
            match share {
                Ok(share) => shares.push(share),
                Err(problem) => return (shares, problem.status),
            }
        }
    }

    #[test]
    fn a_tenant_has_a_quarter_and_however_many_leave_room_for_another() {
        let room = Arc::new(Room::of_bodies());
        let mut all = Vec::new();
        // 32 such bodies would fill it.
        let quarters = [(8, 429); 3];
        let halves_of_the_rest = [(4, 503), (2, 503), (1, 503)];
        let each = quarters.into_iter().chain(halves_of_the_rest);
        for (id, wanted) in (1..).zip(each) {
            let (shares, status) = fill(&room, tenant(id), 8 * MIB);
            assert_eq!((shares.len(), status), wanted, "{id}");
            all.push(shares);
        }
        let (shares, status) = fill(&room, tenant(7), MIN_SHARE_BYTES);
        assert!(shares.len() > 100, "{}", shares.len());
        assert_eq!(status, 503);
        drop(shares);
        all.clear();
        assert_eq!(room.taken().all, 0);
        assert!(room.taken().of.is_empty());
    }

    #[test]
    fn what_has_not_come_takes_next_to_nothing() {
        let room = Arc::new(Room::of_bodies());
        let dripping: Vec<Share> = (0..32).map(|_| room.take(tenant(1)).unwrap()).collect();
        assert_eq!(room.taken().all, 32 * MIN_SHARE_BYTES);
        let (shares, _) = fill(&room, tenant(1), 8 * MIB);
        assert_eq!(shares.len(), 7, "its own bodies still have room");
        drop(dripping);
    }

    fn answer(bytes: usize) -> Response {
        Response::new(Body::from(vec![b'x'; bytes]))
    }

    /// As the server does it: the body is gone, and a part of its bytes is not written.
    #[tokio::test]
    async fn an_answer_has_its_room_until_its_last_byte_is_written() {
        let room = Arc::new(Room::of_answers());
        let held = room.hold(tenant(1), answer(8 * MIB)).await.unwrap();
        assert_eq!(held.body().size_hint().exact(), Some(8 * 1024 * 1024));
        let mut bytes = to_bytes(held.into_body(), 8 * MIB).await.unwrap();
        let last = bytes.split_off(8 * MIB - 1);
        drop(bytes);
        assert_eq!(room.taken().all, 8 * MIB);
        drop(last);
        assert_eq!(room.taken().all, 0);
        let small = room.hold(tenant(1), answer(SMALL_ANSWER_BYTES)).await;
        assert_eq!(room.taken().all, 0, "it is in the connection's buffer");
        drop(small);
    }

    #[tokio::test]
    async fn answers_that_nobody_reads_leave_room_for_those_of_others() {
        let room = Arc::new(Room::of_answers());
        let mut unread = Vec::new();
        for _ in 0..4 {
            unread.push(room.hold(tenant(1), answer(8 * MIB)).await.unwrap());
        }
        let refused = room.hold(tenant(1), answer(8 * MIB)).await.unwrap_err();
        assert_eq!(refused.status, 429);
        assert!(refused.detail.contains("not read yet"), "{refused:?}");
        unread.push(room.hold(tenant(2), answer(8 * MIB)).await.unwrap());
        // What was done is said all the same, and counts.
        unread.push(room.hold_anyway(tenant(1), answer(8 * MIB)).await);
        assert_eq!(room.taken().of(tenant(1)), 40 * MIB);
        unread.clear();
        assert_eq!(room.taken().all, 0);
        assert!(room.taken().of.is_empty());
    }

    /// They are answers to changes, which count among bodies.
    #[tokio::test]
    async fn a_body_without_room_is_told_of_answers_that_nobody_reads() {
        let room = Arc::new(Room::of_bodies());
        let mut unread = Vec::new();
        for _ in 0..8 {
            unread.push(room.hold_anyway(tenant(1), answer(8 * MIB)).await);
        }
        let refused = room.take(tenant(1)).map(drop).unwrap_err();
        assert_eq!(refused.status, 429);
        assert!(refused.detail.contains("not read yet"), "{refused:?}");
        drop(unread);
        assert!(room.take(tenant(1)).is_ok());
    }
}
