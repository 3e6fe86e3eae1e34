//! Every event is at the destination that it was posted for, with a key of that
//! destination's tenant, and nowhere else; and what was rolled back is nowhere.

use std::collections::HashMap;

use super::{Case, Judgement};
use crate::chaos::log::{Post, Said};

pub(super) fn judge(case: &Case<'_>, judgement: &mut Judgement) {
    judge_ledger(case, judgement);
    judge_receipts(case, judgement);
    judge_rolled_back(case, judgement);
}

fn judge_ledger(case: &Case<'_>, judgement: &mut Judgement) {
    let destinations = &case.evidence.run.destinations;
    for (event, post) in &case.accepted {
        if post.intruding {
            judgement.find("strayed", || {
                format!(
                    "event {event} was accepted for destination {}, which is another tenant's",
                    post.destination
                )
            });
        }
        let meant = destinations.get(post.destination as usize);
        for row in case.rows(*event) {
            if meant.is_none_or(|meant| meant.id != row.destination) {
                judgement.find("strayed", || {
                    format!(
                        "attempt {} of event {event} is of {}, the event of destination {}",
                        row.attempt, row.destination, post.destination
                    )
                });
            }
        }
    }
}

fn judge_receipts(case: &Case<'_>, judgement: &mut Judgement) {
    let posts = case.evidence.posts.iter();
    let by_body: HashMap<&str, &Post> = posts.map(|post| (post.body.as_str(), post)).collect();
    let tenant = |number: u32| {
        let tried = case.evidence.run.destinations.get(number as usize);
        tried.map(|tried| tried.tenant)
    };
    for receipt in &case.evidence.receipts {
        let accepted = receipt.event.and_then(|event| case.accepted.get(&event));
        let Some(post) = accepted.or_else(|| by_body.get(receipt.body.as_str())) else {
            continue;
        };
        if post.destination == receipt.destination && !post.intruding {
            continue;
        }
        let is_crossing = post.intruding || tenant(post.destination) != tenant(receipt.destination);
        judgement.find("strayed", || {
            let whose = if is_crossing {
                ", from another tenant"
            } else {
                ""
            };
            format!(
                "event {:?} of destination {} arrived at {}{whose}",
                receipt.event, post.destination, receipt.destination
            )
        });
    }
}

/// What a transaction took back is no event.
fn judge_rolled_back(case: &Case<'_>, judgement: &mut Judgement) {
    for post in &case.evidence.posts {
        let Said::RolledBack(event) = post.said else {
            continue;
        };
        judgement.figures.rolled_back += 1;
        let (attempts, receipts) = (case.rows(event).len(), case.receipts(event).len());
        if attempts + receipts > 0 {
            judgement.find("strayed", || {
                format!(
                    "event {event} was rolled back, and has {attempts} attempts and {receipts} \
                     receipts"
                )
            });
        }
    }
}
