//! Target `secret-url`: the URLs of servers, which carry passwords, as they are
//! shown.

use fuzzing::{Verdict, ensure};
use server::config::SecretUrl;

/// Stands for the password in every input.
const SECRET: &str = "hunter2";

#[test]
fn shown_urls() -> fuzzing::Outcome {
    fuzzing::run(
        super::CRATE,
        "secret-url",
        5_000,
        |input| match std::str::from_utf8(input) {
            Ok(text) => judge(text),
            Err(_) => Ok("not UTF-8".to_owned()),
        },
    )
}

fn judge(text: &str) -> Verdict {
    let Ok(url) = text.parse::<SecretUrl>();
    ensure!(url.expose() == text);
    let shown = url.to_string();
    ensure!(format!("{url:?}") == shown, "Debug shows more");
    let hidden = shown.to_lowercase().contains(SECRET);
    ensure!(!(is_secret(text) && hidden), "shown as {shown}");
    let kind = match shown.as_str() {
        "(unreadable URL)" => "unreadable",
        shown if shown == text => "as it is",
        _ => "redacted",
    };
    Ok(format!(
        "{kind} {} {}",
        shown.contains("***"),
        shown.contains('?')
    ))
}

/// Whether the word stands, and stands only, where people put passwords:
/// between a user's colon and the last `@`, or in a query or fragment. Told by
/// the text alone: a URL that is mistyped has a password, too.
fn is_secret(text: &str) -> bool {
    // The parser drops these wherever they are.
    let text = text.to_lowercase().replace(['\t', '\r', '\n'], "");
    if text == "in-process" || text.starts_with("sqlite:") {
        return false; // a file's name has no password
    }
    let Some((scheme, rest)) = text.split_once(':') else {
        return false;
    };
    let (before, options) = rest.split_at(rest.find(['?', '#']).unwrap_or(rest.len()));
    let (user_info, place) = rest.rsplit_once('@').unwrap_or(("", before));
    let (user, password) = user_info
        .trim_start_matches(['/', '\\'])
        .split_once(':')
        .unwrap_or((user_info, ""));
    let elsewhere = [scheme, user, place.split(['?', '#']).next().unwrap_or("")];
    let secret = password.contains(SECRET) || options.contains(SECRET);
    secret && !elsewhere.iter().any(|part| part.contains(SECRET))
}
