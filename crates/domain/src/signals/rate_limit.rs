//! `RateLimit` and `RateLimit-Policy`, draft-ietf-httpapi-ratelimit-headers:
//! `"burst";r=0;t=5, "daily";r=900` beside `"burst";q=100;w=10` from draft 8 on,
//! `limit=100, remaining=0, reset=42` beside `100;w=60` in draft 7.

use sfv::{BareItem, Dictionary, Item, List, ListEntry, Parser};

/// For how many seconds a policy of which nothing is left stays so: the longest
/// of those that say. One that does not say takes its whole window.
pub(super) fn exhausted_for(limit: &str, policy: &str) -> Option<f64> {
    let policies = items(policy);
    (items(limit).iter())
        .filter(|item| parameter(item, "r").is_some_and(|remaining| remaining <= 0))
        .filter_map(|item| {
            let window = || parameter(named(&policies, &item.bare_item)?, "w");
            parameter(item, "t").or_else(window)
        })
        .max()
        .map(|seconds| seconds as f64)
}

/// What draft 7 says, as far as it does. Nothing of what is no dictionary.
pub(super) struct Members {
    /// The quota.
    pub(super) limit: Option<i64>,
    /// What is left of it.
    pub(super) remaining: Option<i64>,
    /// For how many seconds it stays so.
    pub(super) reset: Option<i64>,
}

impl Members {
    pub(super) fn read(limit: &str) -> Self {
        let members: Dictionary = Parser::new(limit).parse().unwrap_or_default();
        let member = |name: &str| match members.get(name)? {
            ListEntry::Item(item) => integer(&item.bare_item),
            ListEntry::InnerList(_) => None,
        };
        Self {
            limit: member("limit"),
            remaining: member("remaining"),
            reset: member("reset"),
        }
    }
}

/// The window of a quota in seconds: of the policy of the same quota, which stands
/// behind it up to draft 3 (`100, 100;w=60`) and in `RateLimit-Policy` from then on.
/// If there are several, the longest.
pub(super) fn window(limit: &str, policy: &str) -> Option<f64> {
    let (said, policies) = (items(limit), items(policy));
    let quota = integer(&said.first()?.bare_item)?;
    (said.iter().chain(&policies))
        .filter(|item| integer(&item.bare_item) == Some(quota))
        .filter_map(|item| parameter(item, "w"))
        .max()
        .map(|seconds| seconds as f64)
}

fn items(text: &str) -> Vec<Item> {
    let list: List = Parser::new(text).parse().unwrap_or_default();
    let item = |entry| match entry {
        ListEntry::Item(item) => Some(item),
        ListEntry::InnerList(_) => None,
    };
    list.into_iter().filter_map(item).collect()
}

fn named<'a>(items: &'a [Item], name: &BareItem) -> Option<&'a Item> {
    items.iter().find(|item| item.bare_item == *name)
}

fn parameter(item: &Item, name: &str) -> Option<i64> {
    integer(item.params.get(name)?)
}

fn integer(item: &BareItem) -> Option<i64> {
    match item {
        BareItem::Integer(number) => Some(i64::from(*number)),
        _ => None,
    }
}
