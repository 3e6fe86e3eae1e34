//! Memory for bodies: in all, and of one tenant.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use domain::ids::TenantId;

use super::super::problem::Problem;

/// The largest sum of all bodies that are read or worked on at one time.
const MAX_BYTES_AT_ONCE: usize = 256 * 1024 * 1024;

/// Those of one tenant: a quarter, so that it takes four to be in the way of a
/// fifth.
const MAX_BYTES_OF_A_TENANT: usize = MAX_BYTES_AT_ONCE / 4;

/// What one body takes of the room at least, so that many small ones are bounded
/// as well: 16,384 at once.
const MIN_SHARE_BYTES: usize = 16 * 1024;

/// Memory for bodies. What does not fit is refused at once.
#[derive(Default)]
pub struct Room(Mutex<Taken>);

#[derive(Default)]
struct Taken {
    all: usize,
    of: HashMap<TenantId, usize>,
}

/// One body's part of the room, until it is dropped.
pub struct Share {
    room: Arc<Room>,
    tenant: TenantId,
    bytes: usize,
}

impl Room {
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
        let mut share = Share {
            room: Arc::clone(self),
            tenant,
            bytes: 0,
        };
        share.hold(bytes)?;
        Ok(share)
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Share {
    /// Makes it large enough for so many bytes.
    pub(super) fn hold(&mut self, bytes: usize) -> Result<(), Problem> {
        let more = bytes.saturating_sub(self.bytes);
        if more == 0 {
            return Ok(());
        }
        let mut taken = self.room.taken();
        let of_tenant = taken.of.get(&self.tenant).copied().unwrap_or_default();
        if of_tenant + more > MAX_BYTES_OF_A_TENANT {
            let problem = "too many bytes of this tenant are on their way in; nothing was written";
            return Err(Problem::busy(problem));
        }
        if taken.all + more > MAX_BYTES_AT_ONCE {
            let problem = "too many bytes are on their way in; nothing was written";
            return Err(Problem::overloaded(problem));
        }
        taken.all += more;
        taken.of.insert(self.tenant, of_tenant + more);
        self.bytes += more;
        Ok(())
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
    fn a_tenant_has_a_quarter_and_four_have_all() {
        let room = Arc::new(Room::default());
        let mut all = Vec::new();
        for id in 1..=4 {
            let (shares, status) = fill(&room, tenant(id), 8 * MIB);
            assert_eq!((shares.len(), status), (8, 429));
            all.push(shares);
        }
        assert_eq!(fill(&room, tenant(5), 1).1, 503);
        all.clear();
        assert_eq!(room.taken().all, 0);
        assert!(room.taken().of.is_empty());
    }

    #[test]
    fn what_has_not_come_takes_next_to_nothing() {
        let room = Arc::new(Room::default());
        let dripping: Vec<Share> = (0..32).map(|_| room.take(tenant(1)).unwrap()).collect();
        assert_eq!(room.taken().all, 32 * MIN_SHARE_BYTES);
        let (shares, _) = fill(&room, tenant(1), 8 * MIB);
        assert_eq!(shares.len(), 7, "its own bodies still have room");
        drop(dripping);
    }
}
