//! Redaction against a slow and obvious one over parsed values.

use std::collections::BTreeSet;

use domain::redaction::{Redaction, Shown};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::filter::{payload, pointer};

fn hide(value: &mut Value, names: &[String]) {
    let Some((name, below)) = names.split_first() else {
        *value = json!("[redacted]");
        return;
    };
    match value {
        Value::Object(members) => {
            if let Some(member) = members.get_mut(name) {
                hide(member, below);
            }
        }
        Value::Array(elements) => {
            for (at, element) in elements.iter_mut().enumerate() {
                if name == "*" || *name == at.to_string() {
                    hide(element, below);
                }
            }
        }
        _ => {}
    }
}

fn pointers() -> impl Strategy<Value = BTreeSet<String>> {
    let with_stars = (pointer(), any::<bool>()).prop_map(|(pointer, star)| match star {
        true => pointer.replace("/x", "/*"),
        false => pointer,
    });
    prop::collection::btree_set(with_stars, 0..4)
}

proptest! {
    #[test]
    fn what_is_named_is_hidden_and_nothing_else(
        payload in payload(),
        pointers in pointers(),
        pretty in any::<bool>(),
    ) {
        let text = match pretty {
            true => serde_json::to_string_pretty(&payload).unwrap(),
            false => payload.to_string(),
        };
        // The longest first: once something is hidden nothing is below it.
        let mut expected = payload;
        let mut longest_first: Vec<Vec<String>> = (pointers.iter())
            .map(|pointer| {
                let plain = |name: &str| name.replace("~1", "/").replace("~0", "~");
                pointer.split('/').skip(1).map(plain).collect()
            })
            .collect();
        longest_first.sort_by_key(|names| usize::MAX - names.len());
        for names in &longest_first {
            hide(&mut expected, names);
        }
        let pointers: Vec<String> = pointers.into_iter().collect();
        let rules = Redaction::parse(&pointers).unwrap();
        match rules.shown(text.clone().into_bytes()) {
            Shown::Whole(whole) => {
                prop_assert!(pointers.is_empty());
                prop_assert_eq!(whole, text.into_bytes());
            }
            Shown::Redacted(shown) => {
                let shown = String::from_utf8(shown).unwrap();
                let read: Value = serde_json::from_str(&shown).unwrap();
                prop_assert_eq!(&read, &expected);
                // What is shown again is no other.
                let again = rules.shown(shown.clone().into_bytes());
                prop_assert_eq!(again, Shown::Redacted(shown.into_bytes()));
            }
            Shown::Withheld => prop_assert!(false, "it is JSON"),
        }
    }
}
