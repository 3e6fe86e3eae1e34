//! Every dead letter that was replayed is followed by the one attempt that its
//! replay made, and no replay made another.

use super::{Case, Judgement};
use crate::chaos::log::Row;

pub(super) fn judge(case: &Case<'_>, judgement: &mut Judgement) {
    for (event, rows) in &case.rows {
        let follows = rows.iter().skip(1).map(Some).chain([None]);
        let first = rows.first().filter(|first| first.is_replay);
        let wrong = rows.iter().zip(follows).filter_map(|(row, next)| {
            let is_followed = next.is_some_and(|next| next.is_replay);
            (row.is_replayed != is_followed).then(|| (*row, next.copied()))
        });
        let wrong: Vec<_> = (first.map(|first| (*first, None)).into_iter())
            .chain(wrong)
            .collect();
        for (row, next) in wrong {
            judgement.find("replayed", || {
                format!(
                    "event {event}: {} is followed by {}",
                    words(Some(row)),
                    words(next)
                )
            });
        }
    }
}

fn words(row: Option<&Row>) -> String {
    row.map_or_else(
        || "nothing".to_owned(),
        |row| {
            let how = match (row.is_replay, row.is_replayed) {
                (true, true) => ", of a replay and replayed",
                (true, false) => ", of a replay",
                (false, true) => ", replayed",
                (false, false) => "",
            };
            format!("attempt {} ({}{how})", row.attempt, row.state.as_str())
        },
    )
}
