//! A request for a token (RFC 6749, 4.4.2).

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use domain::credentials::{ClientAuth, OAuthClient};
use engine::ports::SendError;
use http::header::{self, HeaderValue};
use http::{Method, Request, Version};
use url::form_urlencoded::{Serializer, byte_serialize};
use zeroize::Zeroizing;

use super::endpoint::Endpoint;

/// What is asked of a token server, and how it is told who asks.
pub(super) fn token_request(
    endpoint: &Endpoint,
    client: &OAuthClient,
) -> Result<Request<Bytes>, SendError> {
    let body = body(client);
    let mut outgoing = Request::new(Bytes::copy_from_slice(body.as_bytes()));
    *outgoing.method_mut() = Method::POST;
    *outgoing.version_mut() = Version::HTTP_11;
    *outgoing.uri_mut() = endpoint.request_target.clone();
    let headers = outgoing.headers_mut();
    headers.insert(header::HOST, endpoint.authority.clone());
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/x-www-form-urlencoded"),
    );
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(body.len()));
    headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
    headers.insert(
        header::USER_AGENT,
        HeaderValue::from_static(super::exchange::USER_AGENT),
    );
    if client.facts().client_auth == ClientAuth::Basic {
        let value = HeaderValue::from_str(&basic(client));
        let refused = |_| SendError::Refused("the client's id is no header value".to_owned());
        let mut value = value.map_err(refused)?;
        value.set_sensitive(true);
        headers.insert(header::AUTHORIZATION, value);
    }
    Ok(outgoing)
}

fn body(client: &OAuthClient) -> Zeroizing<String> {
    let facts = client.facts();
    let mut form = Serializer::new(String::new());
    form.append_pair("grant_type", "client_credentials");
    if !facts.scopes.is_empty() {
        form.append_pair("scope", &facts.scopes.join(" "));
    }
    if let Some(audience) = &facts.audience {
        form.append_pair("audience", audience);
    }
    if facts.client_auth == ClientAuth::Body {
        form.append_pair("client_id", &facts.client_id);
        form.append_pair("client_secret", client.secret());
    }
    Zeroizing::new(form.finish())
}

/// RFC 6749, 2.3.1: both are encoded as in a form before they are joined.
fn basic(client: &OAuthClient) -> Zeroizing<String> {
    let encoded = |text: &str| byte_serialize(text.as_bytes()).collect::<String>();
    let secret = Zeroizing::new(encoded(client.secret()));
    let pair = Zeroizing::new(format!(
        "{}:{}",
        encoded(&client.facts().client_id),
        secret.as_str()
    ));
    let base64 = Zeroizing::new(BASE64_STANDARD.encode(pair.as_bytes()));
    Zeroizing::new(format!("Basic {}", base64.as_str()))
}

#[cfg(test)]
mod tests {
    use domain::credentials::OAuthFacts;

    use super::*;

    fn client(client_auth: ClientAuth) -> OAuthClient {
        let facts = OAuthFacts {
            token_url: "https://login.example/token".to_owned(),
            client_id: "pace:line".to_owned(),
            scopes: vec!["a".to_owned(), "b:c".to_owned()],
            audience: Some("https://hooks.example/".to_owned()),
            client_auth,
        };
        OAuthClient::new(facts, Zeroizing::new("s&c %".to_owned())).unwrap()
    }

    #[test]
    fn it_is_a_form_with_the_secret_in_one_place() {
        let form = "grant_type=client_credentials&scope=a+b%3Ac\
            &audience=https%3A%2F%2Fhooks.example%2F";
        assert_eq!(body(&client(ClientAuth::Basic)).as_str(), form);
        let own = "&client_id=pace%3Aline&client_secret=s%26c+%25";
        let said = body(&client(ClientAuth::Body));
        assert_eq!(said.as_str(), format!("{form}{own}"));
        let basic = basic(&client(ClientAuth::Basic));
        let pair = BASE64_STANDARD.decode(&basic["Basic ".len()..]).unwrap();
        assert_eq!(pair, b"pace%3Aline:s%26c+%25");
    }
}
