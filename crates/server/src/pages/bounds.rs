//! How much a form may say: the number of its fields, and the length of each.
//!
//! A form is bounded as a whole, but its bytes may be thousands of fields, and on a page
//! that shows what was typed one byte can become five. So it is read up to the first field
//! that is too many, or longer than anything that is right in it could be, and is refused
//! there: nothing of it is shown again.

use std::collections::HashMap;

use domain::credentials::{MAX_CERTIFICATE_BYTES, MAX_KEY_BYTES, MAX_SCOPES_BYTES};
use domain::event::MAX_TYPE_BYTES;
use domain::event_types::{MAX_EXAMPLE_BYTES, MAX_SCHEMA_BYTES};
use domain::filter::MAX_FILTER_BYTES;
use domain::header;
use domain::redaction::{MAX_POINTER_BYTES, MAX_POINTERS};

use super::refused::Refused;
use crate::service::rules::MAX_EVENT_TYPES;

/// Fields of one form. The largest has some forty, and one for each event type that is
/// ticked, of which a destination has a hundred.
const MAX_FIELDS: usize = 256;

/// Bytes of a field's name. The longest is a type's, behind a word.
const MAX_NAME_BYTES: usize = 256;

/// Bytes of a field of one line. The longest that one may mean is a URL of 2 KiB.
const MAX_LINE_BYTES: usize = 4_096;

/// The fields of a form, as it was sent.
pub(super) fn read(form: &[u8]) -> Result<HashMap<String, String>, Refused> {
    let mut fields = HashMap::new();
    for (at, (name, text)) in url::form_urlencoded::parse(form).enumerate() {
        if at == MAX_FIELDS {
            let words = format!("A form has at most {MAX_FIELDS} fields; nothing was done.");
            return Err(Refused::invalid(words));
        }
        if name.len() > MAX_NAME_BYTES {
            let words = format!("The name of a field has at most {MAX_NAME_BYTES} bytes.");
            return Err(Refused::invalid(words));
        }
        let most = most_bytes(&name);
        if text.len() > most {
            let words = format!("{name}: must be at most {most} bytes; nothing was done");
            return Err(Refused::invalid(words));
        }
        fields.insert(name.into_owned(), text.into_owned());
    }
    Ok(fields)
}

/// Of a field of lines mostly twice what is right in it: line breaks are two bytes in a form, and
/// spaces do not count everywhere. How long it may be is said beside the form.
fn most_bytes(name: &str) -> usize {
    match name {
        "certificate" => 2 * MAX_CERTIFICATE_BYTES,
        "event_types" => 2 * MAX_EVENT_TYPES * MAX_TYPE_BYTES,
        "example" => 2 * MAX_EXAMPLE_BYTES,
        "filter" => 2 * MAX_FILTER_BYTES,
        "headers" => 2 * header::MAX_TOTAL_BYTES,
        "private_key" => 2 * MAX_KEY_BYTES,
        "redact" => 2 * MAX_POINTERS * MAX_POINTER_BYTES,
        "schema" => 2 * MAX_SCHEMA_BYTES,
        "scopes" => MAX_SCOPES_BYTES,
        _ => MAX_LINE_BYTES,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(form: &str) -> String {
        read(form.as_bytes()).unwrap_err().said().unwrap()
    }

    /// Of so many fields.
    fn of(fields: usize) -> String {
        let fields: Vec<String> = (0..fields).map(|one| format!("a{one}=b")).collect();
        fields.join("&")
    }

    #[test]
    fn a_form_has_so_many_fields_and_no_more() {
        assert_eq!(read(of(MAX_FIELDS).as_bytes()).unwrap().len(), MAX_FIELDS);
        let words = "A form has at most 256 fields; nothing was done.";
        assert_eq!(refused(&of(MAX_FIELDS + 1)), words);
        assert_eq!(
            refused(&"a&".repeat(MAX_FIELDS + 1)),
            words,
            "of one name, too"
        );
        // It is not read on: what comes later would be refused by its name.
        let begun = of(MAX_FIELDS + 1);
        assert_eq!(
            refused(&format!("{begun}&name={}", "<".repeat(5_000))),
            words
        );
    }

    #[test]
    fn a_field_is_no_longer_than_what_it_may_mean() {
        let of = |name: &str, bytes: usize| format!("{name}={}", "<".repeat(bytes));
        assert_eq!(
            read(of("name", 4_096).as_bytes()).unwrap()["name"].len(),
            4_096
        );
        let words = "name: must be at most 4096 bytes; nothing was done";
        assert_eq!(refused(&of("name", 4_097)), words);
        assert!(read(of("filter", 8_192).as_bytes()).is_ok());
        assert!(read(of("scopes", 20 * 513).as_bytes()).is_ok());
        let words = "filter: must be at most 8192 bytes; nothing was done";
        assert_eq!(refused(&of("filter", 8_193)), words);
        // As it is meant, not as it is written.
        let written = format!("url={}", "%3C".repeat(4_096));
        assert_eq!(read(written.as_bytes()).unwrap()["url"].len(), 4_096);
    }

    #[test]
    fn a_name_that_is_too_long_is_not_said_again() {
        let words = "The name of a field has at most 256 bytes.";
        assert_eq!(refused(&"<".repeat(60_000)), words);
        let longest = format!("takes {}=yes", "a".repeat(MAX_TYPE_BYTES));
        assert!(read(longest.as_bytes()).is_ok());
    }
}
