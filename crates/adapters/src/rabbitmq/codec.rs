//! One permit group as the bytes of one message.
//!
//! Owns the wire form: a version byte, a byte with two counts, each destination
//! once, which of them each permit is of, and five little-endian `i64` a permit.
//! Which of them is left out where it goes without saying: where there is one
//! destination, and where each permit has its own. So one permit takes 58 bytes,
//! sixteen of one destination 658, and sixteen of as many 898: never more than if
//! each permit said its destination, a quarter less where they share one. Fixed
//! widths, so that the length alone tells a damaged message.
//!
//! Promises that [`decode`] is total: whatever the bytes, it answers and never
//! panics; and that there is one message for every group. Refuses versions that it
//! does not know, so that an old worker dead-letters what a newer scheduler wrote
//! instead of misreading it.

#[cfg(test)]
mod fuzz;

use domain::ids::{AttemptId, DestinationId, Epoch, PermitNumber};
use domain::permit::{MAX_GROUP, Permit, PermitGroup};
use domain::time::Timestamp;
use uuid::Uuid;

const VERSION: u8 = 2;
/// Version, counts.
const HEADER_BYTES: usize = 1 + 1;
/// A destination's id.
const DESTINATION_BYTES: usize = 16;
/// Attempt, number, epoch, not-before, deadline.
const PERMIT_BYTES: usize = 5 * 8;

/// Why a message is no permit group of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Undecodable {
    /// There is nothing.
    #[error("empty message")]
    Empty,
    /// Written by a version that is not known here.
    #[error("unknown version {0}")]
    Version(u8),
    /// More destinations than permits.
    #[error("{permits} permits of {destinations} destinations")]
    Counts {
        /// Destinations that it says to have.
        destinations: usize,
        /// Permits that it says to have.
        permits: usize,
    },
    /// Cut off, or with something behind it.
    #[error("{found} bytes instead of {expected}")]
    Length {
        /// Bytes that such a message has, at least where it is too short to tell.
        expected: usize,
        /// Bytes that there are.
        found: usize,
    },
    /// Permits that are not in the order of their slots, or destinations that do
    /// not stand once each, in the order in which permits name them.
    #[error("permits or destinations out of order")]
    Order,
}

/// How much a message holds. Its length follows from that.
#[derive(Debug, Clone, Copy)]
struct Shape {
    destinations: usize,
    permits: usize,
}

const _: () = assert!(MAX_GROUP * MAX_GROUP <= 256, "two counts are one byte");

impl Shape {
    /// Neither is ever none, so that sixteen of each are one byte.
    fn of(counts: u8) -> Self {
        Self {
            destinations: usize::from(counts) / MAX_GROUP + 1,
            permits: usize::from(counts) % MAX_GROUP + 1,
        }
    }

    fn counts(self) -> u8 {
        let counts = (self.destinations - 1) * MAX_GROUP + self.permits - 1;
        u8::try_from(counts).expect("a group holds at most MAX_GROUP permits")
    }

    /// A byte for each permit, unless it goes without saying.
    fn index_bytes(self) -> usize {
        match 1 < self.destinations && self.destinations < self.permits {
            true => self.permits,
            false => 0,
        }
    }

    fn bytes(self) -> usize {
        let destinations = self.destinations * DESTINATION_BYTES;
        HEADER_BYTES + destinations + self.index_bytes() + self.permits * PERMIT_BYTES
    }
}

/// The message that says this group.
#[must_use]
pub fn encode(group: &PermitGroup) -> Vec<u8> {
    let permits = group.permits();
    let mut destinations: Vec<DestinationId> = Vec::with_capacity(permits.len());
    let mut indices = Vec::with_capacity(permits.len());
    for permit in permits {
        let known = (destinations.iter()).position(|one| *one == permit.destination);
        let index = known.unwrap_or(destinations.len());
        if known.is_none() {
            destinations.push(permit.destination);
        }
        indices.push(u8::try_from(index).expect("a group holds at most MAX_GROUP permits"));
    }
    let shape = Shape {
        destinations: destinations.len(),
        permits: permits.len(),
    };
    let mut bytes = Vec::with_capacity(shape.bytes());
    bytes.push(VERSION);
    bytes.push(shape.counts());
    for destination in destinations {
        bytes.extend_from_slice(destination.0.as_bytes());
    }
    bytes.extend_from_slice(&indices[..shape.index_bytes()]);
    for permit in permits {
        for word in [
            permit.attempt.0,
            permit.number.0,
            permit.epoch.0,
            permit.not_before.as_micros(),
            permit.deadline.as_micros(),
        ] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
    }
    bytes
}

/// The group that a message says.
pub fn decode(bytes: &[u8]) -> Result<PermitGroup, Undecodable> {
    let &version = bytes.first().ok_or(Undecodable::Empty)?;
    if version != VERSION {
        return Err(Undecodable::Version(version));
    }
    // One that ends before its counts is shorter than the shortest.
    let shape = Shape::of(bytes.get(1).copied().unwrap_or_default());
    let Shape {
        destinations,
        permits,
    } = shape;
    let counts = Undecodable::Counts {
        destinations,
        permits,
    };
    if destinations > permits {
        return Err(counts);
    }
    if bytes.len() != shape.bytes() {
        return Err(Undecodable::Length {
            expected: shape.bytes(),
            found: bytes.len(),
        });
    }
    let (table, rest) = bytes[HEADER_BYTES..].split_at(destinations * DESTINATION_BYTES);
    let (indices, words) = rest.split_at(shape.index_bytes());
    let table = table.as_chunks::<DESTINATION_BYTES>().0;
    let indices: Vec<usize> = match indices.is_empty() {
        true => (0..permits).map(|place| place % destinations).collect(),
        false => indices.iter().copied().map(usize::from).collect(),
    };
    if !is_in_order(table, &indices) {
        return Err(Undecodable::Order);
    }
    let permits: Vec<_> = (indices.iter())
        .zip(words.as_chunks::<PERMIT_BYTES>().0)
        .map(|(index, words)| read_permit(table[*index], words))
        .collect();
    if !permits.is_sorted_by_key(|permit| permit.not_before) {
        return Err(Undecodable::Order);
    }
    PermitGroup::new(permits).ok_or(counts)
}

/// Whether each destination stands once, in the order in which permits name them.
fn is_in_order(destinations: &[[u8; DESTINATION_BYTES]], indices: &[usize]) -> bool {
    let mut named = 0;
    for index in indices {
        if *index > named {
            return false;
        }
        named = named.max(index + 1);
    }
    let stands_before = |place: usize| destinations[..place].contains(&destinations[place]);
    named == destinations.len() && !(0..named).any(stands_before)
}

fn read_permit(destination: [u8; DESTINATION_BYTES], bytes: &[u8; PERMIT_BYTES]) -> Permit {
    let words = bytes.as_chunks::<8>().0;
    let word = |index: usize| i64::from_le_bytes(words[index]);
    Permit {
        destination: DestinationId(Uuid::from_bytes(destination)),
        attempt: AttemptId(word(0)),
        number: PermitNumber(word(1)),
        epoch: Epoch(word(2)),
        not_before: Timestamp::from_micros(word(3)),
        deadline: Timestamp::from_micros(word(4)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn destination(high: u64, low: u64) -> DestinationId {
        DestinationId(Uuid::from_u64_pair(high, low))
    }

    /// A small deterministic generator (splitmix64).
    struct Words(u64);

    impl Words {
        fn next(&mut self) -> u64 {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut word = self.0;
            word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            word ^ (word >> 31)
        }

        fn signed(&mut self) -> i64 {
            match self.next() % 8 {
                0 => i64::MIN,
                1 => i64::MAX,
                2 => 0,
                _ => self.next().cast_signed(),
            }
        }

        fn up_to(&mut self, most: usize) -> usize {
            1 + usize::try_from(self.next() % most as u64).unwrap()
        }

        /// Of up to sixteen destinations, some of them with more than one permit.
        fn group(&mut self) -> PermitGroup {
            let (permits, destinations) = (self.up_to(MAX_GROUP), self.up_to(MAX_GROUP));
            self.group_of(permits, destinations)
        }

        fn group_of(&mut self, permits: usize, destinations: usize) -> PermitGroup {
            let (high, low) = (self.next(), self.next());
            let permits = (0..permits)
                .map(|place| Permit {
                    destination: destination(high, low + (place % destinations) as u64),
                    attempt: AttemptId(self.signed()),
                    number: PermitNumber(self.signed()),
                    epoch: Epoch(self.signed()),
                    not_before: Timestamp::from_micros(self.signed()),
                    deadline: Timestamp::from_micros(self.signed()),
                })
                .collect();
            PermitGroup::new(permits).unwrap()
        }
    }

    #[test]
    fn what_is_encoded_decodes_to_the_same() {
        let mut words = Words(1);
        for _ in 0..2_000 {
            let group = words.group();
            assert_eq!(decode(&encode(&group)), Ok(group));
        }
    }

    #[test]
    fn one_permit_is_58_bytes_and_its_form_is_fixed() {
        let group = PermitGroup::new(vec![Permit {
            destination: destination(0, 0x0102),
            attempt: AttemptId(1),
            number: PermitNumber(2),
            epoch: Epoch(3),
            not_before: Timestamp::from_micros(4),
            deadline: Timestamp::from_micros(-1),
        }])
        .unwrap();
        let mut expected = vec![2, 0];
        expected.extend([0; 14]);
        expected.extend([1, 2]);
        for low in [1, 2, 3, 4] {
            expected.push(low);
            expected.extend([0; 7]);
        }
        expected.extend([255; 8]);
        assert_eq!(encode(&group), expected);
        assert_eq!(expected.len(), 58);
    }

    #[test]
    fn each_destination_is_said_once_and_whose_a_permit_is_where_it_is_not_plain() {
        let mut words = Words(5);
        let mut bytes = |destinations| encode(&words.group_of(MAX_GROUP, destinations)).len();
        assert_eq!([1, 2, 15, 16].map(&mut bytes), [658, 690, 898, 898]);
        let permit = |number: u64| Permit {
            destination: destination(0, 0x0100 + number % 2),
            attempt: AttemptId(7),
            number: PermitNumber(7),
            epoch: Epoch(7),
            not_before: Timestamp::from_micros(7),
            deadline: Timestamp::from_micros(7),
        };
        let three = PermitGroup::new([0, 1, 0].map(permit).to_vec()).unwrap();
        let bytes = encode(&three);
        assert_eq!(bytes[..2], [2, 16 + 2]);
        assert_eq!(bytes[2..18], *permit(0).destination.0.as_bytes());
        assert_eq!(bytes[18..34], *permit(1).destination.0.as_bytes());
        assert_eq!(bytes[34..37], [0, 1, 0]);
        assert_eq!(bytes.len(), 37 + 3 * 40);
    }

    #[test]
    fn no_bytes_make_it_panic() {
        let mut words = Words(2);
        for _ in 0..20_000 {
            let length = usize::try_from(words.next() % 120).unwrap();
            let mut bytes: Vec<u8> = (0..length).map(|_| words.next() as u8).collect();
            if let Some(version) = bytes.first_mut() {
                *version = (words.next() % 3) as u8;
            }
            let _ = decode(&bytes);
        }
    }

    #[test]
    fn every_truncation_and_every_trailing_byte_is_refused() {
        let mut words = Words(3);
        for destinations in [1, 3, 5] {
            let whole = encode(&words.group_of(5, destinations));
            for length in 0..whole.len() {
                assert!(decode(&whole[..length]).is_err(), "{length} bytes");
            }
            let mut longer = whole;
            longer.push(0);
            assert!(matches!(decode(&longer), Err(Undecodable::Length { .. })));
        }
    }

    #[test]
    fn other_versions_and_counts_are_refused() {
        let mut bytes = encode(&Words(4).group());
        for version in (0..=255).filter(|version| *version != VERSION) {
            bytes[0] = version;
            assert_eq!(decode(&bytes), Err(Undecodable::Version(version)));
        }
        bytes[0] = VERSION;
        bytes[1] = 2 * 16 + 1;
        let counts = Undecodable::Counts {
            destinations: 3,
            permits: 2,
        };
        assert_eq!(decode(&bytes), Err(counts));
        assert_eq!(decode(&[]), Err(Undecodable::Empty));
    }

    /// Somebody else wrote it, or it is damaged where its length does not tell.
    #[test]
    fn what_we_would_write_otherwise_is_refused() {
        let slots = [1_u64, 2, 3].map(|slot| Permit {
            destination: destination(0, slot % 2),
            attempt: AttemptId(1),
            number: PermitNumber(1),
            epoch: Epoch(1),
            not_before: Timestamp::from_micros(slot.cast_signed()),
            deadline: Timestamp::from_micros(9),
        });
        let whole = encode(&PermitGroup::new(slots.to_vec()).unwrap());
        assert!(decode(&whole).is_ok());
        let indices = HEADER_BYTES + 2 * DESTINATION_BYTES;
        let second_slot = indices + 3 + PERMIT_BYTES + 3 * 8;
        let second_destination = HEADER_BYTES + 2 * DESTINATION_BYTES - 1;
        for (place, byte) in [
            // The second destination is named first; it is never named; there is no third.
            (indices, 1),
            (indices + 1, 0),
            (indices + 2, 2),
            // The one destination stands twice.
            (
                second_destination,
                whole[HEADER_BYTES + DESTINATION_BYTES - 1],
            ),
            (second_slot, 0),
            (second_slot, 4),
        ] {
            let mut damaged = whole.clone();
            damaged[place] = byte;
            assert_eq!(decode(&damaged), Err(Undecodable::Order), "{place}: {byte}");
        }
    }
}
