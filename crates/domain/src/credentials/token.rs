//! A token, and what a token server's answer means (RFC 6749, 5).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use zeroize::Zeroizing;

/// The longest token: servers commonly take 8 KiB of headers.
pub const MAX_TOKEN_BYTES: usize = 7 * 1024;

/// How long a token lasts whose server does not say.
const UNSAID: Duration = Duration::from_secs(300);

/// How long it lasts at most, whatever its server says.
const LONGEST: Duration = Duration::from_secs(86_400);

/// The longest word of an error.
const MAX_WORD_BYTES: usize = 64;

/// An access token. `Debug` does not show it, and it is wiped when the last clone is
/// dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(Arc<Zeroizing<String>>);

impl Token {
    /// Of this text, if it can stand in a header (RFC 6750, 2.1); `None` if not.
    #[must_use]
    pub fn new(text: Zeroizing<String>) -> Option<Self> {
        let body = text.trim_end_matches('=');
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/".contains(&byte);
        let is_one = !body.is_empty() && text.len() <= MAX_TOKEN_BYTES && body.bytes().all(fits);
        is_one.then(|| Self(Arc::new(text)))
    }

    /// The value of the header `authorization`.
    #[must_use]
    pub fn authorization(&self) -> Zeroizing<String> {
        let mut value = Zeroizing::new(String::with_capacity("Bearer ".len() + self.0.len()));
        value.push_str("Bearer ");
        value.push_str(&self.0);
        value
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(***)")
    }
}

/// A token that was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Granted {
    /// Which.
    pub token: Token,
    /// For so long from when it was asked for.
    pub lasts: Duration,
}

/// Unknown fields are the server's own.
#[derive(Deserialize)]
struct Answer {
    access_token: String,
    token_type: Option<String>,
    expires_in: Option<Value>,
}

#[derive(Deserialize)]
struct Refusal {
    error: String,
}

/// What a token server's answer means: a token, or why there is none, in words for the
/// destination's owner. They hold nothing that the server wrote but the word of its
/// error: a description may repeat a secret.
///
/// ```
/// use domain::credentials::read_answer;
/// let body = br#"{"access_token": "abc", "token_type": "Bearer", "expires_in": 3600}"#;
/// assert_eq!(read_answer(200, body).map(|granted| granted.lasts.as_secs()), Ok(3_600));
/// let body = br#"{"error": "invalid_client", "error_description": "no such secret: xyz"}"#;
/// let refused = read_answer(401, body).unwrap_err();
/// assert_eq!(refused, "the token server answered 401: invalid_client");
/// ```
pub fn read_answer(status: u16, body: &[u8]) -> Result<Granted, String> {
    if status != 200 {
        let refusal: Option<Refusal> = serde_json::from_slice(body).ok();
        let word = refusal.map(|refusal| refusal.error);
        let word = word.filter(|word| is_word(word));
        let word = word.map_or_else(String::new, |word| format!(": {word}"));
        return Err(format!("the token server answered {status}{word}"));
    }
    let answer: Answer = serde_json::from_slice(body)
        .map_err(|_invalid| "the token server's answer has no access_token".to_owned())?;
    let token = Zeroizing::new(answer.access_token);
    let kind = answer.token_type.as_deref().unwrap_or("bearer");
    if !kind.eq_ignore_ascii_case("bearer") {
        return Err("the token server gave a token that is no bearer token".to_owned());
    }
    let token = Token::new(token).ok_or_else(|| {
        format!(
            "the token server gave a token that no header can hold, or one of more than \
             {MAX_TOKEN_BYTES} bytes"
        )
    })?;
    let lasts = match answer.expires_in {
        None | Some(Value::Null) => UNSAID,
        Some(said) => seconds(&said)
            .ok_or_else(|| "the token server's expires_in is no number of seconds".to_owned())?,
    };
    if lasts.is_zero() {
        return Err("the token server gave a token that has ended already".to_owned());
    }
    Ok(Granted { token, lasts })
}

/// As a number, or as a text of digits, as some servers write it.
fn seconds(said: &Value) -> Option<Duration> {
    let seconds = match said {
        Value::Number(number) => number.as_f64()?,
        Value::String(text) => f64::from(text.parse::<u32>().ok()?),
        _ => return None,
    };
    let lasts = Duration::try_from_secs_f64(seconds).ok()?;
    Some(lasts.min(LONGEST))
}

/// As RFC 6749 has them: `invalid_client`.
fn is_word(word: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
    !word.is_empty() && word.len() <= MAX_WORD_BYTES && word.bytes().all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lasts(expires_in: &str) -> Result<u64, String> {
        let body = format!(r#"{{"access_token":"a.b-c_d~e+f/g==","expires_in":{expires_in}}}"#);
        read_answer(200, body.as_bytes()).map(|granted| granted.lasts.as_secs())
    }

    #[test]
    fn its_life_is_what_the_server_says_within_reason() {
        assert_eq!(lasts("3599"), Ok(3_599));
        assert_eq!(lasts("3599.0"), Ok(3_599));
        assert_eq!(lasts("\"3599\""), Ok(3_599));
        assert_eq!(lasts("null"), Ok(300));
        assert_eq!(lasts("99999999999"), Ok(86_400));
        assert!(lasts("0").unwrap_err().contains("ended already"));
        for bad in ["-1", "\"soon\"", "[]", "1e400"] {
            assert!(lasts(bad).is_err(), "{bad}");
        }
        let unsaid = read_answer(200, br#"{"access_token":"a"}"#).unwrap();
        assert_eq!(unsaid.lasts.as_secs(), 300);
    }

    #[test]
    fn what_is_no_token_is_refused_and_not_repeated() {
        let long = format!(
            r#"{{"access_token":"{}"}}"#,
            "a".repeat(MAX_TOKEN_BYTES + 1)
        );
        for body in [
            "",
            "canary",
            "[]",
            r#"{"token":"canary"}"#,
            r#"{"access_token":""}"#,
            r#"{"access_token":"canary\r\nx: y"}"#,
            r#"{"access_token":"canary canary"}"#,
            r#"{"access_token":"=="}"#,
            r#"{"access_token":"canary","token_type":"mac"}"#,
            &long,
        ] {
            let why = read_answer(200, body.as_bytes()).unwrap_err();
            assert!(!why.contains("canary"), "{why}");
        }
    }

    #[test]
    fn of_a_refusal_only_its_word_is_told() {
        for (body, said) in [
            (
                r#"{"error":"invalid_scope"}"#,
                "answered 400: invalid_scope",
            ),
            (r#"{"error":"<b>canary</b>"}"#, "answered 400"),
            ("<html>canary", "answered 400"),
            ("", "answered 400"),
        ] {
            let why = read_answer(400, body.as_bytes()).unwrap_err();
            assert_eq!(why, format!("the token server {said}"));
        }
        assert!(read_answer(302, br#"{"access_token":"a"}"#).is_err());
    }

    #[test]
    fn a_token_is_not_shown() {
        let token = Token::new(Zeroizing::new("canary".to_owned())).unwrap();
        assert!(!format!("{token:?}").contains("canary"));
        assert_eq!(token.authorization().as_str(), "Bearer canary");
    }
}
