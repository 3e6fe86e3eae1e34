//! Target `permits`: messages of the delivery queue, from whoever can write to
//! the broker.

use std::collections::BTreeSet;

use fuzzing::{Verdict, ensure};

use super::{Shape, Undecodable, decode, encode};

#[test]
fn permit_messages() -> fuzzing::Outcome {
    fuzzing::run(env!("CARGO_MANIFEST_DIR"), "permits", 50_000, judge)
}

/// There is one message for every group, and one group for every message.
fn judge(input: &[u8]) -> Verdict {
    let group = match decode(input) {
        Ok(group) => group,
        Err(error) => return Ok(kind(error).to_owned()),
    };
    let permits = group.permits();
    let destinations: BTreeSet<_> = permits.iter().map(|permit| permit.destination).collect();
    let shape = Shape {
        destinations: destinations.len(),
        permits: permits.len(),
    };
    ensure!(input.len() == shape.bytes());
    ensure!(permits.is_sorted_by_key(|permit| permit.not_before));
    ensure!(encode(&group) == input, "another message says the same");
    Ok(format!("{shape:?}"))
}

fn kind(error: Undecodable) -> &'static str {
    match error {
        Undecodable::Empty => "empty",
        Undecodable::Version(_) => "version",
        Undecodable::Counts { .. } => "counts",
        Undecodable::Length { .. } => "length",
        Undecodable::Order => "order",
    }
}
