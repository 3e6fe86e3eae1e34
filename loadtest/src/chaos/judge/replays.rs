//! Every dead letter that was replayed is followed by the one attempt that its
//! replay made, and no replay made another.

use promises::a_dead_letter_is_replayed_once;

use super::{Case, Judgement};
use crate::chaos::log::Row;

pub(super) fn judge(case: &Case<'_>, judgement: &mut Judgement) {
    for (event, rows) in &case.rows {
        let places = |is: fn(&Row) -> bool, from: u32| -> Vec<_> {
            (from..)
                .zip(rows)
                .filter(|(_, row)| is(row))
                .map(|(place, _)| (*event, place))
                .collect()
        };
        let replayed = places(|row| row.is_replayed, 1);
        let made = places(|row| row.is_replay, 0);
        judgement.keep("replayed", a_dead_letter_is_replayed_once(&replayed, &made));
    }
}
