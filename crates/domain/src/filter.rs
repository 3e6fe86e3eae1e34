//! Content filters: which events of its types a destination takes, by what is in
//! their payloads.
//!
//! A filter is a JSON object. Its names are JSON pointers into the payload, its
//! values what has to be found there, and all entries must hold. It is a total
//! function of the payload, bounded in bytes, values and depth, and it never fails:
//! what is not as it was expected does not match.

use std::cmp::Ordering;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::event::is_json;

mod number;
mod subscribers;

pub use subscribers::{Filters, Subscriber};

/// The longest filter, in bytes, written without spaces. An event reads those of all
/// its subscribers.
pub const MAX_FILTER_BYTES: usize = 4_096;

/// The most values that one filter compares with, and filters in it: what one event
/// costs at one destination.
pub const MAX_VALUES: usize = 100;

/// How deep `any` may be in `any`.
pub const MAX_DEPTH: usize = 3;

/// The entry that holds if one of its filters does.
const ANY: &str = "any";

/// What a payload has to have.
///
/// ```
/// use domain::filter::{Content, Filter};
/// use serde_json::json;
///
/// let filter = Filter::parse(json!({
///     "/order/total": {"gte": 100},
///     "/region": ["eu", "us"],
///     "/test": {"exists": false},
/// })).unwrap();
/// let takes = |payload: &str| {
///     filter.takes(&Content::of("application/json", payload.as_bytes()))
/// };
/// assert!(takes(r#"{"order": {"total": 100.0}, "region": "eu"}"#));
/// assert!(!takes(r#"{"order": {"total": 99}, "region": "eu"}"#));
/// assert!(!takes(r#"{"order": {"total": 100}, "region": "eu", "test": null}"#));
/// assert!(!takes("no JSON"));
///
/// let refused = Filter::parse(json!({"/total": {"gte": true}})).unwrap_err();
/// assert_eq!(refused.to_string(), r#"["/total"].gte: must be a number or a string"#);
/// ```
#[derive(Clone, Serialize, Deserialize)]
#[serde(try_from = "Value", into = "Value")]
pub struct Filter {
    json: Value,
    /// What it means; or that it has none, which only a hand in the database can have
    /// written.
    terms: Result<Vec<Term>, InvalidFilter>,
}

/// What is no filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidFilter {
    /// Where in the filter, such as `["/order/total"].gte` or `.any[1]`; empty of the
    /// whole.
    pub at: String,
    /// What is wrong there.
    pub problem: String,
}

impl fmt::Display for InvalidFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.at.is_empty() {
            true => f.write_str(&self.problem),
            false => write!(f, "{}: {}", self.at, self.problem),
        }
    }
}

impl std::error::Error for InvalidFilter {}

impl Filter {
    /// The filter that this says.
    pub fn parse(json: Value) -> Result<Self, InvalidFilter> {
        let filter = Self::kept(json);
        match filter.problem() {
            Some(problem) => Err(problem.clone()),
            None => Ok(filter),
        }
    }

    /// What a store keeps, whatever that is: it may have been written by hand. One that
    /// makes no sense takes nothing, for its owner wanted less than everything.
    #[must_use]
    pub fn kept(json: Value) -> Self {
        let terms = Reader::default().whole(&json);
        Self { json, terms }
    }

    /// The same of its text.
    #[must_use]
    pub fn stored(text: &str) -> Self {
        // What is no JSON is shown as the text that it is, and is no object.
        Self::kept(serde_json::from_str(text).unwrap_or_else(|_not_json| text.into()))
    }

    /// As it was written.
    #[must_use]
    pub const fn json(&self) -> &Value {
        &self.json
    }

    /// Why it takes nothing, if it makes no sense.
    #[must_use]
    pub fn problem(&self) -> Option<&InvalidFilter> {
        self.terms.as_ref().err()
    }

    /// Whether this is what it asks for. One that asks for nothing takes everything;
    /// any other takes nothing that is not JSON.
    #[must_use]
    pub fn takes(&self, content: &Content) -> bool {
        match (&self.terms, &content.0) {
            (Err(_), _) => false,
            (Ok(terms), None) => terms.is_empty(),
            (Ok(terms), Some(payload)) => hold(terms, payload),
        }
    }
}

/// By what they mean: a store may write a number in another way.
impl PartialEq for Filter {
    fn eq(&self, other: &Self) -> bool {
        match (&self.terms, &other.terms) {
            (Ok(some), Ok(others)) => some == others,
            _ => self.json == other.json,
        }
    }
}

impl Eq for Filter {}

impl fmt::Debug for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.json, f)
    }
}

impl TryFrom<Value> for Filter {
    type Error = InvalidFilter;

    fn try_from(json: Value) -> Result<Self, InvalidFilter> {
        Self::parse(json)
    }
}

impl From<Filter> for Value {
    fn from(filter: Filter) -> Self {
        filter.json
    }
}

/// A payload, as filters look at it.
#[derive(Debug, Clone, PartialEq)]
pub struct Content(Option<Value>);

impl Content {
    /// Reads it, if its media type and its bytes are JSON.
    #[must_use]
    pub fn of(content_type: &str, payload: &[u8]) -> Self {
        Self(match is_json(content_type) {
            true => serde_json::from_slice(payload).ok(),
            false => None,
        })
    }
}

/// An entry of a filter.
#[derive(Debug, Clone, PartialEq)]
enum Term {
    /// What is at a JSON pointer passes all of these.
    At(String, Vec<Test>),
    /// One of these filters holds, at least.
    Any(Vec<Vec<Term>>),
}

#[derive(Debug, Clone, PartialEq)]
enum Test {
    In(Vec<Scalar>),
    NotIn(Vec<Scalar>),
    Exists(bool),
    Is(Comparison, Scalar),
    Prefix(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Gt,
    Gte,
    Lt,
    Lte,
}

/// `null`, a boolean, a number or a string.
#[derive(Debug, Clone)]
struct Scalar(Value);

impl PartialEq for Scalar {
    fn eq(&self, other: &Self) -> bool {
        self.is(&other.0)
    }
}

impl Scalar {
    fn is(&self, found: &Value) -> bool {
        match (&self.0, found) {
            (Value::Number(_), Value::Number(_)) => self.order_of(found) == Some(Ordering::Equal),
            (scalar, found) => scalar == found,
        }
    }

    /// How what was found compares with it: numbers with numbers, strings with strings
    /// by their bytes, nothing else.
    fn order_of(&self, found: &Value) -> Option<Ordering> {
        match (found, &self.0) {
            (Value::Number(found), Value::Number(bound)) => number::compare(found, bound),
            (Value::String(found), Value::String(bound)) => Some(found.cmp(bound)),
            _ => None,
        }
    }
}

fn hold(terms: &[Term], payload: &Value) -> bool {
    terms.iter().all(|term| match term {
        Term::At(pointer, tests) => {
            let found = payload.pointer(pointer);
            tests.iter().all(|test| test.passes(found))
        }
        Term::Any(filters) => filters.iter().any(|terms| hold(terms, payload)),
    })
}

impl Test {
    fn passes(&self, found: Option<&Value>) -> bool {
        let is_one_of = |values: &[Scalar]| {
            found.is_some_and(|found| values.iter().any(|value| value.is(found)))
        };
        match self {
            Self::In(values) => is_one_of(values),
            // Also of what is not there.
            Self::NotIn(values) => !is_one_of(values),
            Self::Exists(wanted) => found.is_some() == *wanted,
            Self::Is(comparison, bound) => found
                .and_then(|found| bound.order_of(found))
                .is_some_and(|order| comparison.allows(order)),
            Self::Prefix(start) => {
                (found.and_then(Value::as_str)).is_some_and(|text| text.starts_with(start.as_str()))
            }
        }
    }
}

impl Comparison {
    const fn allows(self, order: Ordering) -> bool {
        match self {
            Self::Gt => order.is_gt(),
            Self::Gte => order.is_ge(),
            Self::Lt => order.is_lt(),
            Self::Lte => order.is_le(),
        }
    }
}

/// Reads a filter, and counts what is in it.
#[derive(Default)]
struct Reader {
    values: usize,
}

type Read<T> = Result<T, InvalidFilter>;

fn refused<T>(at: impl Into<String>, problem: impl Into<String>) -> Read<T> {
    Err(InvalidFilter {
        at: at.into(),
        problem: problem.into(),
    })
}

impl Reader {
    fn whole(&mut self, json: &Value) -> Read<Vec<Term>> {
        if json.to_string().len() > MAX_FILTER_BYTES {
            let problem = format!("must be at most {MAX_FILTER_BYTES} bytes without spaces");
            return refused("", problem);
        }
        self.terms("", json, 0)
    }

    fn terms(&mut self, at: &str, json: &Value, depth: usize) -> Read<Vec<Term>> {
        let Some(entries) = json.as_object() else {
            return refused(at, "must be an object of JSON pointers and what is there");
        };
        let read = entries.iter().map(|(name, wanted)| match name.as_str() {
            ANY => self.any(&format!("{at}.{ANY}"), wanted, depth + 1),
            pointer => {
                let at = format!("{at}[{}]", Value::from(pointer));
                pointer_problem(pointer).map_or(Ok(()), |problem| refused(&at, problem))?;
                let tests = self.tests(&at, wanted)?;
                Ok(Term::At(pointer.to_owned(), tests))
            }
        });
        read.collect()
    }

    fn any(&mut self, at: &str, wanted: &Value, depth: usize) -> Read<Term> {
        if depth > MAX_DEPTH {
            return refused(at, format!("is more than {MAX_DEPTH} deep"));
        }
        let filters = match wanted.as_array() {
            Some(filters) if !filters.is_empty() => filters,
            _ => return refused(at, "must be a list of at least one filter"),
        };
        let read = filters.iter().enumerate().map(|(i, filter)| {
            let at = format!("{at}[{i}]");
            self.count(&at)?;
            self.terms(&at, filter, depth)
        });
        read.collect::<Read<_>>().map(Term::Any)
    }

    fn tests(&mut self, at: &str, wanted: &Value) -> Read<Vec<Test>> {
        match wanted {
            Value::Object(operators) => self.operators(at, operators),
            Value::Array(_) => Ok(vec![Test::In(self.scalars(at, wanted)?)]),
            one => Ok(vec![Test::In(vec![self.scalar(at, one)?])]),
        }
    }

    fn operators(&mut self, at: &str, operators: &Map<String, Value>) -> Read<Vec<Test>> {
        if operators.is_empty() {
            return refused(at, "must have an operator, such as {\"exists\": true}");
        }
        let read = operators.iter().map(|(operator, operand)| {
            let at = format!("{at}.{operator}");
            Ok(match operator.as_str() {
                "eq" => Test::In(vec![self.scalar(&at, operand)?]),
                "in" => Test::In(self.scalars(&at, operand)?),
                "not" if operand.is_array() => Test::NotIn(self.scalars(&at, operand)?),
                "not" => Test::NotIn(vec![self.scalar(&at, operand)?]),
                "exists" => Test::Exists(self.boolean(&at, operand)?),
                "gt" => Test::Is(Comparison::Gt, self.bound(&at, operand)?),
                "gte" => Test::Is(Comparison::Gte, self.bound(&at, operand)?),
                "lt" => Test::Is(Comparison::Lt, self.bound(&at, operand)?),
                "lte" => Test::Is(Comparison::Lte, self.bound(&at, operand)?),
                "prefix" => Test::Prefix(self.text(&at, operand)?),
                _ => {
                    let problem = "is no operator: eq, not, in, exists, gt, gte, lt, lte or prefix";
                    return refused(at, problem);
                }
            })
        });
        read.collect()
    }

    fn count(&mut self, at: &str) -> Read<()> {
        self.values += 1;
        match self.values > MAX_VALUES {
            true => refused(
                at,
                format!("is one too many: a filter has at most {MAX_VALUES} values"),
            ),
            false => Ok(()),
        }
    }

    fn scalars(&mut self, at: &str, operand: &Value) -> Read<Vec<Scalar>> {
        let values = match operand.as_array() {
            Some(values) if !values.is_empty() => values,
            _ => return refused(at, "must be a list of at least one value"),
        };
        let read = values.iter().enumerate();
        read.map(|(i, value)| self.scalar(&format!("{at}[{i}]"), value))
            .collect()
    }

    fn scalar(&mut self, at: &str, value: &Value) -> Read<Scalar> {
        self.count(at)?;
        match value {
            Value::Object(_) | Value::Array(_) => {
                refused(at, "must be a string, a number, true, false or null")
            }
            Value::String(text) if text.contains('\0') => refused(at, NUL),
            Value::String(_) | Value::Number(_) | Value::Bool(_) | Value::Null => {
                Ok(Scalar(value.clone()))
            }
        }
    }

    fn boolean(&mut self, at: &str, operand: &Value) -> Read<bool> {
        self.count(at)?;
        operand
            .as_bool()
            .map_or_else(|| refused(at, "must be true or false"), Ok)
    }

    fn bound(&mut self, at: &str, operand: &Value) -> Read<Scalar> {
        match operand {
            Value::String(_) | Value::Number(_) => self.scalar(at, operand),
            _ => refused(at, "must be a number or a string"),
        }
    }

    fn text(&mut self, at: &str, operand: &Value) -> Read<String> {
        match self.scalar(at, operand)?.0 {
            Value::String(text) => Ok(text),
            _ => refused(at, "must be a string"),
        }
    }
}

/// Postgres keeps no such JSON.
const NUL: &str = "must not have the character U+0000";

/// What is wrong with a name that has to be a JSON pointer.
fn pointer_problem(pointer: &str) -> Option<&'static str> {
    if !pointer.starts_with('/') {
        return Some("must be `any`, or a JSON pointer, which begins with /");
    }
    if pointer.contains('\0') {
        return Some(NUL);
    }
    let escapes = pointer.split('~').skip(1);
    let is_escape = |rest: &str| rest.starts_with(['0', '1']);
    let problem = "must be a JSON pointer: ~ stands there as ~0, and / in a name as ~1";
    (!escapes.into_iter().all(is_escape)).then_some(problem)
}

#[cfg(test)]
mod tests;
