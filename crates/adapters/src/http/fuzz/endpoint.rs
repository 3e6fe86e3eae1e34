//! Target `url`: a destination's URL, as its owner wrote it.

use std::net::IpAddr;

use fuzzing::{Context, Verdict, ensure};
use url::{Host, Url};

use super::super::endpoint::{Endpoint, Scheme};
use super::super::policy::Policy;

#[test]
fn urls() -> fuzzing::Outcome {
    fuzzing::run(
        super::CRATE,
        "url",
        5_000,
        |input| match std::str::from_utf8(input) {
            Ok(text) => judge(text),
            Err(_) => Ok("not UTF-8".to_owned()),
        },
    )
}

/// Any port, since ports have rules of their own.
fn policy(allow_http: bool) -> Policy {
    Policy {
        allow_http,
        networks: "0.0.0.0/0:*".parse().into_iter().collect(),
        ..Policy::default()
    }
}

/// What is accepted is sent to exactly the host and port that the URL parser
/// names, and nothing of it can end a line of the request.
fn judge(text: &str) -> Verdict {
    let strict = Endpoint::parse(text, &policy(false));
    let endpoint = match Endpoint::parse(text, &policy(true)) {
        Ok(endpoint) => endpoint,
        Err(error) => {
            ensure!(strict.is_err(), "refused with http, accepted without");
            return Ok(error.to_string());
        }
    };
    let url = Url::parse(text).context("accepted what is no URL")?;
    ensure!(
        strict.is_ok() == (url.scheme() == "https"),
        "plain http depends on more than the scheme"
    );
    ensure!(url.username().is_empty() && url.password().is_none());
    same_place(&endpoint, &url)?;
    one_line(&endpoint)?;
    again(&endpoint)?;
    let verifiable = endpoint.origin.server_name().is_ok();
    ensure!(verifiable || url.scheme() == "http", "no certificate fits");
    let kind = match endpoint.origin.host {
        Host::Domain(_) => "name",
        Host::Ipv4(_) => "IPv4",
        Host::Ipv6(_) => "IPv6",
    };
    let scheme = endpoint.origin.scheme;
    let (port, query) = (url.port().is_some(), url.query().is_some());
    Ok(format!(
        "{scheme:?} {kind} {verifiable} port {port} query {query}"
    ))
}

fn same_place(endpoint: &Endpoint, url: &Url) -> fuzzing::Result<()> {
    let origin = &endpoint.origin;
    ensure!(Some(origin.host.to_string().as_str()) == url.host_str());
    ensure!(Some(origin.port) == url.port_or_known_default() && origin.port != 0);
    ensure!((origin.scheme == Scheme::Https) == (url.scheme() == "https"));
    // A name that is an address in disguise would be resolved past whoever
    // vets addresses.
    if let Host::Domain(name) = &origin.host {
        ensure!(!name.is_empty() && name.is_ascii());
        ensure!(name.parse::<IpAddr>().is_err(), "{name} is an address");
    }
    Ok(())
}

fn one_line(endpoint: &Endpoint) -> fuzzing::Result<()> {
    let visible = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
    let target = endpoint.request_target.to_string();
    let authority = endpoint.authority.to_str().context("the authority")?;
    ensure!(visible(authority), "the authority has {authority:?}");
    ensure!(!authority.contains(['@', '/', '?', '#', '\\']));
    ensure!(visible(&target), "the request target has {target:?}");
    ensure!(target.starts_with('/') && !target.contains('#'));
    Ok(())
}

/// What is written in the request names the same place once more.
fn again(endpoint: &Endpoint) -> fuzzing::Result<()> {
    let scheme = match endpoint.origin.scheme {
        Scheme::Http => "http",
        Scheme::Https => "https",
    };
    let authority = endpoint.authority.to_str()?;
    let text = format!("{scheme}://{authority}{}", endpoint.request_target);
    let again = Endpoint::parse(&text, &policy(true)).with_context(|| format!("refuses {text}"))?;
    ensure!(again.origin == endpoint.origin, "{text} is elsewhere");
    ensure!(again.authority == endpoint.authority);
    ensure!(again.request_target == endpoint.request_target, "{text}");
    Ok(())
}
