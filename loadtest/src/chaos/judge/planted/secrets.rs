//! Secrets that were rotated.

use super::*;
use crate::chaos::log::{KnownSecret, SecretNote};

const OLD: u64 = 501;
const NEW: u64 = 502;

/// What the receivers call the new one.
const CALLED: u64 = 503;

fn note(secret: u64, noted_at: i64, expires_at: Option<i64>) -> SecretNote {
    SecretNote {
        secret: id(secret),
        destination: id(9_000),
        expires_at: expires_at.map(|at| at + AHEAD),
        noted_at: noted_at + AHEAD,
    }
}

/// Destination 0 has another secret from 10 s on; the old one signs beside it for
/// 8 s. In the two seconds after it was noted, either is right.
fn rotate(evidence: &mut Evidence) {
    evidence.secrets = vec![
        note(OLD, -5 * SECOND, None),
        note(OLD, 10 * SECOND, Some(18 * SECOND)),
        note(NEW, 10 * SECOND, None),
    ];
    evidence.known = [(OLD, OLD), (CALLED, NEW)]
        .map(|(called, secret)| KnownSecret {
            called: id(called),
            secret: id(secret),
        })
        .to_vec();
    let at = |row: &Row| row.started_at.unwrap() - AHEAD;
    for (row, receipt) in evidence.rows.iter().zip(&mut evidence.receipts) {
        receipt.signed_by = match at(row) / SECOND {
            ..11 => vec![id(OLD)],
            11..18 => vec![id(CALLED), id(OLD)],
            _ => vec![id(CALLED)],
        };
    }
}

/// The first event of destination 0 in this second is signed by these.
fn signed(second: usize, by: &[u64]) -> Vec<&'static str> {
    broken(|evidence| {
        rotate(evidence);
        evidence.receipts[second * 8].signed_by = by.iter().map(|one| id(*one)).collect();
    })
}

#[test]
fn each_request_is_signed_by_the_secrets_in_force_and_by_no_other() {
    let sound = broken(rotate);
    assert!(sound.is_empty(), "{sound:?}");
    assert_eq!(signed(5, &[]), ["signature"]);
    assert!(signed(11, &[OLD]).is_empty(), "as it was rotated");
    assert_eq!(signed(15, &[OLD]), ["signature"], "without the new one");
    assert_eq!(
        signed(15, &[CALLED]),
        ["signature"],
        "the old one has not ended"
    );
    assert_eq!(
        signed(20, &[OLD, CALLED]),
        ["signature"],
        "the old one has ended"
    );
    let mut evidence = super::sound();
    rotate(&mut evidence);
    assert_eq!(judge(&evidence).figures.rotations, 1);
}
