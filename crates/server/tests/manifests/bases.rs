//! What the image is built from is pinned by digest.

use std::collections::BTreeSet;

use super::built::read;
use super::image::instructions;

/// The image that a stage begins with, with the argument that it is named by.
fn base(from: &str) -> String {
    let Some(argument) = from
        .strip_prefix("${")
        .and_then(|rest| rest.strip_suffix('}'))
    else {
        return from.to_owned();
    };
    let default = format!("{argument}=");
    let mut all = instructions().into_iter();
    let found = all.find_map(|(word, words)| match word.as_str() {
        "ARG" => words[0].strip_prefix(&default).map(str::to_owned),
        _ => None,
    });
    found.unwrap_or_else(|| panic!("{argument} has no default"))
}

/// What a tag means can be changed by others; what a digest means cannot.
#[test]
fn bases_are_pinned_by_digest() {
    let mut stages = BTreeSet::new();
    let mut last = String::new();
    for (_, words) in instructions()
        .into_iter()
        .filter(|(word, _)| word == "FROM")
    {
        let from = base(&words[0]);
        stages.extend(words.get(2).cloned());
        last.clone_from(&from);
        if stages.contains(&from) {
            continue;
        }
        let (image, digest) = from.split_once("@sha256:").expect(&from);
        assert!(image.contains(':'), "{image} says which version it is");
        assert_eq!(digest.len(), 64, "{from}");
        let mut hex = digest.chars();
        assert!(
            hex.all(|digit| digit.is_ascii_digit() || ('a'..='f').contains(&digit)),
            "{from}"
        );
    }
    // Without a shell, and not as root.
    let wanted = "gcr.io/distroless/cc-debian12:nonroot@sha256:";
    assert!(last.starts_with(wanted), "{last}");
    let shown = wanted.trim_end_matches("@sha256:");
    let refreshed = format!("docker buildx imagetools inspect {shown}");
    assert!(read("Dockerfile").contains(&refreshed), "how to refresh it");
}
