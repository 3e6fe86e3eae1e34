//! Every event is at the destination that it was posted for, with a key of that
//! destination's tenant, and nowhere else; and what was rolled back is nowhere.

use std::collections::HashMap;

use promises::{an_event_is_where_it_was_posted, what_was_rolled_back_is_nowhere};

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
        let meant = meant.map(|meant| meant.id);
        for row in case.rows(*event) {
            let of = format!("attempt {} of event {event}", row.attempt);
            let judged = an_event_is_where_it_was_posted(of, (row.destination, meant));
            judgement.keep("strayed", judged);
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
        let is_crossing = post.intruding || tenant(post.destination) != tenant(receipt.destination);
        let whose = if is_crossing {
            ", from another tenant,"
        } else {
            ""
        };
        let of = format!("event {:?}{whose}", receipt.event);
        let posted_for = (!post.intruding).then_some(post.destination);
        let judged = an_event_is_where_it_was_posted(of, (receipt.destination, posted_for));
        judgement.keep("strayed", judged);
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
        let judged = what_was_rolled_back_is_nowhere(event, (attempts, receipts));
        judgement.keep("strayed", judged);
    }
}
