//! Which text is a mail address.

/// The longest that SMTP carries.
const MAX_EMAIL: usize = 254;

/// The longest part before the `@`.
const MAX_LOCAL: usize = 64;

/// Why this is no mail address that we write to; `None` if it is one. Narrower
/// than the standard: no quotes, comments, spaces or control characters, so
/// nothing in it can begin a header of its own.
#[must_use]
pub fn email_problem(text: &str) -> Option<&'static str> {
    let Some((local, host)) = text.rsplit_once('@') else {
        return Some("must be a mail address, such as ops@example.com");
    };
    let atom = |one: char| one.is_ascii_alphanumeric() || "!#$%&'*+-/=?^_`{|}~".contains(one);
    let is_local = local.len() <= MAX_LOCAL
        && (local.split('.')).all(|part| !part.is_empty() && part.chars().all(atom));
    if !is_local {
        return Some(
            "may contain only letters, digits, single dots and !#$%&'*+-/=?^_`{|}~ before the @, at most 64",
        );
    }
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && (label.chars()).all(|one| one.is_ascii_alphanumeric() || one == '-')
    };
    if !host.split('.').all(is_label) {
        return Some("must have a host name after the @, such as example.com");
    }
    (text.len() > MAX_EMAIL).then_some("must have at most 254 characters")
}
