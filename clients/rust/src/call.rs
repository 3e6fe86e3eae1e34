//! One request, for the operations of `api.rs`.

use reqwest::header::{AUTHORIZATION, CONTENT_TYPE};
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::client::{Client, Error, header};

const JSON: &str = "application/json";
const LINES: &str = "application/x-ndjson";
const PROBLEM: &str = "application/problem+json";

/// How much is kept of an answer that nobody can read.
const UNEXPECTED_CHARS: usize = 1_000;

pub(crate) struct Call(RequestBuilder);

/// What came back, and it is good.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    body: Vec<u8>,
}

impl Client {
    /// A request to these segments of a path, which are escaped. A segment that no URL
    /// can have is refused: left out, it would lead to another operation.
    pub(crate) fn call(&self, method: Method, path: &[&str]) -> Result<Call, Error> {
        let lost = path.iter().find(|part| matches!(**part, "" | "." | ".."));
        if let Some(lost) = lost {
            return Err(Error::Id((*lost).to_owned()));
        }
        let mut url = self.url.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path);
        }
        let request = self.http.request(method, url);
        let request = request.header(AUTHORIZATION, self.authorization.clone());
        Ok(Call(match &self.tenant {
            Some(tenant) => request.header("paceline-tenant", tenant.clone()),
            None => request,
        }))
    }
}

impl Call {
    /// Each field that is there, as a parameter.
    pub(crate) fn query(self, options: &impl Serialize) -> Result<Self, Error> {
        let options = serde_json::to_value(options).map_err(Error::Request)?;
        let (client, request) = self.0.build_split();
        let mut request = request?;
        let fields = options.as_object().into_iter().flatten();
        for (name, value) in fields {
            let text = match value {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            request.url_mut().query_pairs_mut().append_pair(name, &text);
        }
        Ok(Self(RequestBuilder::from_parts(client, request)))
    }

    pub(crate) fn header(self, name: &'static str, value: Option<&str>) -> Result<Self, Error> {
        Ok(match value {
            Some(value) => Self(self.0.header(name, header(name, value)?)),
            None => self,
        })
    }

    pub(crate) fn json(self, body: &impl Serialize) -> Result<Self, Error> {
        let body = serde_json::to_vec(body).map_err(Error::Request)?;
        Ok(Self(self.0.header(CONTENT_TYPE, JSON).body(body)))
    }

    /// A line of JSON for each.
    pub(crate) fn lines(self, items: &[impl Serialize]) -> Result<Self, Error> {
        let mut body = Vec::new();
        for item in items {
            serde_json::to_writer(&mut body, item).map_err(Error::Request)?;
            body.push(b'\n');
        }
        Ok(Self(self.0.header(CONTENT_TYPE, LINES).body(body)))
    }

    pub(crate) async fn send(self) -> Result<Answer, Error> {
        let response = self.0.send().await?;
        let status = response.status();
        if status.is_success() {
            let body = response.bytes().await?.into();
            return Ok(Answer { status, body });
        }
        Err(refusal(status, response).await)
    }
}

async fn refusal(status: StatusCode, response: Response) -> Error {
    let kind = response.headers().get(CONTENT_TYPE);
    let is_problem = kind.is_some_and(|kind| kind.as_bytes().starts_with(PROBLEM.as_bytes()));
    let body = match response.bytes().await {
        Ok(body) => body,
        Err(error) => return error.into(),
    };
    match serde_json::from_slice(&body) {
        Ok(problem) if is_problem => Error::Problem(Box::new(problem)),
        _ => Error::Unexpected {
            status: status.as_u16(),
            body: String::from_utf8_lossy(&body)
                .chars()
                .take(UNEXPECTED_CHARS)
                .collect(),
        },
    }
}

impl Answer {
    pub(crate) fn json<T: DeserializeOwned>(&self) -> Result<T, Error> {
        serde_json::from_slice(&self.body).map_err(Error::Answer)
    }

    /// What each line of JSON says.
    pub(crate) fn lines<T: DeserializeOwned>(&self) -> Result<Vec<T>, Error> {
        let lines = self.body.split(|byte| *byte == b'\n');
        lines
            .filter(|line| !line.trim_ascii().is_empty())
            .map(|line| serde_json::from_slice(line).map_err(Error::Answer))
            .collect()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{LineResult, ListEventsOptions, PostEvent};

    fn client() -> Client {
        Client::new("http://localhost:8080/base/", "key").expect("both are fine")
    }

    #[test]
    fn what_is_asked_is_escaped() {
        let mut options = ListEventsOptions::default();
        options.r#type = Some("order.paid&limit=1".to_owned());
        options.limit = Some(5);
        let call = client().call(Method::GET, &["v1", "events", "a/b?c"]);
        let call = call.and_then(|call| call.query(&options)).expect("a call");
        let request = call.0.build().expect("a request");
        let expected = "http://localhost:8080/base/v1/events/a%2Fb%3Fc\
            ?limit=5&type=order.paid%26limit%3D1";
        assert_eq!(request.url().as_str(), expected);
    }

    #[test]
    fn an_id_that_no_path_can_have_is_refused() {
        for id in ["", ".", ".."] {
            let refused = client().call(Method::DELETE, &["v1", "tenants", id]);
            assert!(matches!(refused.err(), Some(Error::Id(named)) if named == id));
        }
    }

    #[test]
    fn lines_are_written_and_read() {
        let mut event = PostEvent::default();
        event.payload = Some(serde_json::json!({"order": 42}));
        let call = client().call(Method::POST, &["v1"]).expect("a call");
        let call = call.lines(&[event.clone(), event]).expect("plain data");
        let request = call.0.build().expect("a request");
        let body = request.body().and_then(|body| body.as_bytes());
        let line = "{\"payload\":{\"order\":42}}\n";
        assert_eq!(body, Some(line.repeat(2).as_bytes()));

        let body = br#"{"line": 1, "id": "a", "destinations": []}

            {"line": 3, "problem": {"type": "t", "title": "No", "status": 422, "detail": "d"}}
            "#;
        let answer = Answer {
            status: StatusCode::OK,
            body: body.to_vec(),
        };
        let read: Vec<LineResult> = answer.lines().expect("two lines");
        assert_eq!(read.iter().map(|one| one.line).collect::<Vec<_>>(), [1, 3]);
    }
}
