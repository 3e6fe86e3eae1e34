//! How much a form may say: the number of its fields, and the length of each.
//!
//! A form is bounded as a whole, but its bytes may be thousands of fields, and on a page
//! that shows what was typed one byte can become five. So it is read up to the first field
//! that is too many, or longer than a browser lets be typed there, and is refused there:
//! nothing of it is shown again. What a browser does let be typed is read, so that what is
//! wrong with it is said beside the form.

use std::collections::HashMap;

use domain::credentials::{MAX_CERTIFICATE_BYTES, MAX_KEY_BYTES, MAX_SCOPES_BYTES};
use domain::event::MAX_TYPE_BYTES;
use domain::event_types::{MAX_EXAMPLE_BYTES, MAX_SCHEMA_BYTES, MAX_TYPES};
use domain::filter::MAX_FILTER_BYTES;
use domain::header;
use domain::redaction::{MAX_POINTER_BYTES, MAX_POINTERS};

use super::refused::Refused;
use crate::service::rules::{MAX_EVENT_TYPES, MAX_URL_BYTES};

/// Fields of one form. The largest has some forty, and one for each event type that is
/// ticked, of which the catalogue offers so many.
const MAX_FIELDS: usize = 256 + MAX_TYPES as usize;

/// Bytes of a field's name. The longest is a type's, behind a word.
const MAX_NAME_BYTES: usize = 256;

/// Bytes of one of the units of UTF-16 that a browser counts for `maxlength`, at most. A
/// line break is one of them, and two bytes in a form.
pub(super) const UNIT_BYTES: usize = 3;

/// Bytes of a field of one line. The longest that one may mean is a URL.
const MAX_LINE_BYTES: usize = UNIT_BYTES * MAX_URL_BYTES;

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

/// As long as it is where each unit that is right in it has all of its bytes.
fn most_bytes(name: &str) -> usize {
    let units = match name {
        "certificate" => MAX_CERTIFICATE_BYTES,
        "event_types" => MAX_EVENT_TYPES * MAX_TYPE_BYTES,
        "example" => MAX_EXAMPLE_BYTES,
        // Spaces do not count.
        "filter" => 2 * MAX_FILTER_BYTES,
        "headers" => header::MAX_TOTAL_BYTES,
        "private_key" => MAX_KEY_BYTES,
        "redact" => MAX_POINTERS * MAX_POINTER_BYTES,
        "schema" => MAX_SCHEMA_BYTES,
        "scopes" => MAX_SCOPES_BYTES,
        _ => return MAX_LINE_BYTES,
    };
    UNIT_BYTES * units
}

#[cfg(test)]
mod tests {
    use std::path::Path;

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
        let words = "A form has at most 1256 fields; nothing was done.";
        assert_eq!(refused(&of(MAX_FIELDS + 1)), words);
        assert_eq!(
            refused(&"a&".repeat(MAX_FIELDS + 1)),
            words,
            "of one name, too"
        );
        // It is not read on: what comes later would be refused by its name.
        let begun = of(MAX_FIELDS + 1);
        assert_eq!(
            refused(&format!("{begun}&name={}", "<".repeat(7_000))),
            words
        );
    }

    #[test]
    fn a_field_is_no_longer_than_what_it_may_mean() {
        let of = |name: &str, bytes: usize| format!("{name}={}", "<".repeat(bytes));
        assert_eq!(
            read(of("name", 6_144).as_bytes()).unwrap()["name"].len(),
            6_144
        );
        let words = "name: must be at most 6144 bytes; nothing was done";
        assert_eq!(refused(&of("name", 6_145)), words);
        assert!(read(of("filter", 24_576).as_bytes()).is_ok());
        let words = "filter: must be at most 24576 bytes; nothing was done";
        assert_eq!(refused(&of("filter", 24_577)), words);
        // As it is meant, not as it is written.
        let written = format!("url={}", "%3C".repeat(6_144));
        assert_eq!(read(written.as_bytes()).unwrap()["url"].len(), 6_144);
    }

    #[test]
    fn whatever_a_browser_lets_be_typed_is_read() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("templates");
        let mut found = 0;
        for page in std::fs::read_dir(folder).unwrap() {
            let page = std::fs::read_to_string(page.unwrap().path()).unwrap();
            for tag in page.split('<') {
                let says = |attribute: &str| {
                    let (_, rest) = tag.split_once(&format!(" {attribute}=\""))?;
                    rest.split('"').next()
                };
                let Some(units) = says("maxlength") else {
                    continue;
                };
                let (name, units) = (says("name").unwrap(), units.parse::<usize>().unwrap());
                let long = "\u{4e00}".repeat(units);
                assert!(long.len() <= most_bytes(name), "{name}: {units} units");
                found += 1;
            }
        }
        assert!(found > 30, "only {found} fields");
    }

    #[test]
    fn a_name_that_is_too_long_is_not_said_again() {
        let words = "The name of a field has at most 256 bytes.";
        assert_eq!(refused(&"<".repeat(60_000)), words);
        let longest = format!("takes {}=yes", "a".repeat(MAX_TYPE_BYTES));
        assert!(read(longest.as_bytes()).is_ok());
    }
}
