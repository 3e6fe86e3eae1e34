//! One permit group as the bytes of one message.
//!
//! Owns the wire form: a version byte, the destination once, a count, then
//! five little-endian `i64` a permit. 58 bytes for one permit, 658 for a full
//! group; fixed widths, so that the length alone tells a damaged message.
//!
//! Promises that [`decode`] is total: whatever the bytes, it answers and never
//! panics. Refuses versions that it does not know, so that an old worker
//! dead-letters what a newer scheduler wrote instead of misreading it.

#[cfg(test)]
mod fuzz;

use domain::ids::{AttemptId, DestinationId, Epoch, PermitNumber};
use domain::permit::{MAX_GROUP, Permit, PermitGroup};
use domain::time::Timestamp;
use uuid::Uuid;

const VERSION: u8 = 1;
/// Version, destination, count.
const HEADER_BYTES: usize = 1 + 16 + 1;
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
    /// None, or more than a group holds.
    #[error("a count of {0} permits")]
    Count(u8),
    /// Cut off, or with something behind it.
    #[error("{found} bytes instead of {expected}")]
    Length {
        /// Bytes that such a message has, at least where it is too short to tell.
        expected: usize,
        /// Bytes that there are.
        found: usize,
    },
}

/// The message that says this group.
#[must_use]
pub fn encode(group: &PermitGroup) -> Vec<u8> {
    let permits = group.permits();
    let mut bytes = Vec::with_capacity(HEADER_BYTES + permits.len() * PERMIT_BYTES);
    bytes.push(VERSION);
    bytes.extend_from_slice(group.destination().0.as_bytes());
    bytes.push(u8::try_from(permits.len()).expect("a group holds at most MAX_GROUP permits"));
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
    let short = Undecodable::Length {
        expected: HEADER_BYTES + PERMIT_BYTES,
        found: bytes.len(),
    };
    let (header, body) = bytes.split_first_chunk::<HEADER_BYTES>().ok_or(short)?;
    let destination = DestinationId(Uuid::from_slice(&header[1..17]).or(Err(short))?);
    let count = header[17];
    let permits = usize::from(count);
    if permits == 0 || permits > MAX_GROUP {
        return Err(Undecodable::Count(count));
    }
    if body.len() != permits * PERMIT_BYTES {
        return Err(Undecodable::Length {
            expected: HEADER_BYTES + permits * PERMIT_BYTES,
            found: bytes.len(),
        });
    }
    let permits = body
        .as_chunks::<PERMIT_BYTES>()
        .0
        .iter()
        .map(|permit| read_permit(destination, permit))
        .collect();
    PermitGroup::new(permits).ok_or(Undecodable::Count(count))
}

fn read_permit(destination: DestinationId, bytes: &[u8; PERMIT_BYTES]) -> Permit {
    let words = bytes.as_chunks::<8>().0;
    let word = |index: usize| i64::from_le_bytes(words[index]);
    Permit {
        destination,
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

        fn group(&mut self) -> PermitGroup {
            let count = 1 + usize::try_from(self.next() % MAX_GROUP as u64).unwrap();
            let destination = DestinationId(Uuid::from_u64_pair(self.next(), self.next()));
            let permits = (0..count)
                .map(|_| Permit {
                    destination,
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
        let destination = DestinationId(Uuid::from_u128(0x0102));
        let group = PermitGroup::new(vec![Permit {
            destination,
            attempt: AttemptId(1),
            number: PermitNumber(2),
            epoch: Epoch(3),
            not_before: Timestamp::from_micros(4),
            deadline: Timestamp::from_micros(-1),
        }])
        .unwrap();
        let mut expected = vec![1];
        expected.extend([0; 14]);
        expected.extend([1, 2, 1]);
        for low in [1, 2, 3, 4] {
            expected.push(low);
            expected.extend([0; 7]);
        }
        expected.extend([255; 8]);
        assert_eq!(encode(&group), expected);
        assert_eq!(expected.len(), 58);
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
        let whole = encode(&Words(3).group());
        for length in 0..whole.len() {
            assert!(decode(&whole[..length]).is_err(), "{length} bytes");
        }
        let mut longer = whole;
        longer.push(0);
        assert!(matches!(decode(&longer), Err(Undecodable::Length { .. })));
    }

    #[test]
    fn other_versions_and_counts_are_refused() {
        let mut bytes = encode(&Words(4).group());
        for version in (0..=255).filter(|version| *version != VERSION) {
            bytes[0] = version;
            assert_eq!(decode(&bytes), Err(Undecodable::Version(version)));
        }
        bytes[0] = VERSION;
        bytes[17] = 0;
        assert_eq!(decode(&bytes), Err(Undecodable::Count(0)));
        bytes[17] = 17;
        bytes.resize(HEADER_BYTES + 17 * PERMIT_BYTES, 0);
        assert_eq!(decode(&bytes), Err(Undecodable::Count(17)));
        assert_eq!(decode(&[]), Err(Undecodable::Empty));
    }
}
