//! `RateLimit` and `RateLimit-Policy`, draft-ietf-httpapi-ratelimit-headers:
//! `"burst";r=0;t=5, "daily";r=900` beside `"burst";q=100;w=10`.

use sfv::{BareItem, Item, List, ListEntry, Parser};

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
    match item.params.get(name)? {
        BareItem::Integer(number) => Some(i64::from(*number)),
        _ => None,
    }
}
