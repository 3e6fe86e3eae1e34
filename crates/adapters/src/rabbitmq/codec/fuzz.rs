//! Target `permits`: messages of the delivery queue, from whoever can write to
//! the broker.

use domain::permit::MAX_GROUP;
use fuzzing::{Verdict, ensure};

use super::{HEADER_BYTES, PERMIT_BYTES, Undecodable, decode, encode};

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
    ensure!((1..=MAX_GROUP).contains(&permits.len()));
    ensure!(input.len() == HEADER_BYTES + permits.len() * PERMIT_BYTES);
    ensure!(
        permits
            .iter()
            .all(|permit| permit.destination == group.destination())
    );
    ensure!(encode(&group) == input, "another message says the same");
    Ok(format!("{} permits", permits.len()))
}

fn kind(error: Undecodable) -> &'static str {
    match error {
        Undecodable::Empty => "empty",
        Undecodable::Version(_) => "version",
        Undecodable::Count(_) => "count",
        Undecodable::Length { .. } => "length",
    }
}
