//! A process with the API, and a client of it.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, ensure};
use http::StatusCode;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use serde_json::json;
use server::trial::{Child, SharedParts};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::Instant;
use uuid::Uuid;

/// The key that the API is started with.
pub(crate) const KEY: &str = "loadtest";

/// What a form of the pages is sent as.
const FORM: &str = "application/x-www-form-urlencoded";

/// More than any disk holds.
const UNBOUNDED: &str = "1000000000000";

/// What an API needs to let us in, and to refuse nothing: what is measured is
/// what a backlog costs, not when it is refused.
pub(crate) const OPEN: [(&str, &str); 8] = [
    ("PACELINE_API_KEY", KEY),
    ("PACELINE_MAX_DESTINATION_BACKLOG", UNBOUNDED),
    ("PACELINE_MAX_TENANT_BACKLOG", UNBOUNDED),
    ("PACELINE_MAX_BACKLOG", UNBOUNDED),
    ("PACELINE_INGEST_PER_SECOND", "1000000000"),
    ("PACELINE_TENANT_INGEST_PER_SECOND", "1000000000"),
    ("PACELINE_MANAGE_PER_SECOND", "1000000000"),
    ("PACELINE_TENANT_MANAGE_PER_SECOND", "1000000000"),
];

/// A running `api` or `serve`; it is killed when it is dropped.
pub(crate) struct Api {
    pub(crate) child: Child,
    /// Where it listens.
    pub(crate) address: String,
}

impl Api {
    /// Starts it; it may not listen yet.
    pub(crate) fn start(
        role: &'static str,
        program: PathBuf,
        shared: &SharedParts,
        address: &str,
    ) -> anyhow::Result<Self> {
        let mut command = tokio::process::Command::new(program);
        command
            .arg(role)
            .envs(shared.environment())
            .env("PACELINE_LISTEN", address)
            .envs(OPEN);
        Ok(Self {
            child: Child::spawn(role, command)?,
            address: address.to_owned(),
        })
    }
}

/// One keep-alive connection to the API.
pub(crate) struct Client {
    sender: hyper::client::conn::http1::SendRequest<Full<Bytes>>,
    host: String,
    key: String,
    cookie: Option<String>,
}

impl Client {
    /// Dials until somebody listens.
    pub(crate) async fn dial(address: &str) -> anyhow::Result<Self> {
        Self::dial_from(Ipv4Addr::LOCALHOST, address).await
    }

    /// The same from another address of this machine, for whoever counts connections
    /// by their address.
    pub(crate) async fn dial_from(from: Ipv4Addr, address: &str) -> anyhow::Result<Self> {
        let stream = tokio::time::timeout(Duration::from_secs(30), async {
            loop {
                if let Ok(stream) = connect_from(from, address).await {
                    return stream;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        })
        .await
        .context("the API does not listen")?;
        stream.set_nodelay(true)?;
        let io = TokioIo::new(stream);
        let (sender, connection) = hyper::client::conn::http1::handshake(io).await?;
        tokio::spawn(connection);
        Ok(Self {
            sender,
            host: address.to_owned(),
            key: KEY.to_owned(),
            cookie: None,
        })
    }

    /// The same with another key than the one the API was started with.
    pub(crate) fn with_key(mut self, key: &str) -> Self {
        key.clone_into(&mut self.key);
        self
    }

    /// The same as somebody who has signed in: it asks as a browser does.
    pub(crate) fn with_cookie(mut self, cookie: &str) -> Self {
        self.cookie = Some(cookie.to_owned());
        self
    }

    /// Sends so many requests, one after the other; milliseconds, sorted.
    pub(crate) async fn time(
        &mut self,
        requests: u32,
        method: &str,
        path: &str,
        body: &str,
    ) -> anyhow::Result<Vec<f64>> {
        let mut took = Vec::new();
        for _ in 0..requests {
            let began = Instant::now();
            self.send(method, path, body).await?;
            took.push(began.elapsed().as_secs_f64() * 1_000.0);
        }
        took.sort_unstable_by(f64::total_cmp);
        Ok(took)
    }

    /// Sends one request and reads its answer, which must be a success.
    pub(crate) async fn send(
        &mut self,
        method: &str,
        path: &str,
        body: &str,
    ) -> anyhow::Result<()> {
        self.exchange(method, path, body).await.map(drop)
    }

    /// The same, for the answer's JSON.
    pub(crate) async fn ask(
        &mut self,
        method: &str,
        path: &str,
        body: &str,
    ) -> anyhow::Result<serde_json::Value> {
        let answer = self.exchange(method, path, body).await?;
        serde_json::from_slice(&answer).context("read the answer")
    }

    async fn exchange(&mut self, method: &str, path: &str, body: &str) -> anyhow::Result<Bytes> {
        let (status, answer) = self.answer(method, path, body).await?;
        let said = String::from_utf8_lossy(&answer);
        ensure!(
            status.is_success(),
            "{method} {path} answered {status}: {said}"
        );
        Ok(answer)
    }

    /// Sends one request and reads its answer, whatever it is.
    pub(crate) async fn answer(
        &mut self,
        method: &str,
        path: &str,
        body: &str,
    ) -> anyhow::Result<(StatusCode, Bytes)> {
        let mut request = hyper::Request::builder()
            .method(method)
            .uri(path)
            .header("host", &self.host);
        request = match &self.cookie {
            Some(cookie) => request
                .header("cookie", cookie)
                .header("sec-fetch-site", "same-origin")
                .header("content-type", FORM),
            None => request
                .header("authorization", format!("Bearer {}", self.key))
                .header("content-type", "application/json"),
        };
        let request = request.body(Full::new(Bytes::from(body.to_owned())))?;
        let response = self.response(request).await?;
        let status = response.status();
        Ok((status, response.into_body().collect().await?.to_bytes()))
    }

    /// Signs in to the pages with its key; from then on it asks as a browser does,
    /// with the cookie that is returned.
    pub(crate) async fn sign_in(&mut self) -> anyhow::Result<&str> {
        let request = hyper::Request::builder()
            .method("POST")
            .uri("/dashboard/sign-in")
            .header("host", &self.host)
            .header("sec-fetch-site", "same-origin")
            .header("content-type", FORM)
            .body(Full::new(Bytes::from(format!("key={}", self.key))))?;
        let response = self.response(request).await?;
        let cookie = response.headers().get("set-cookie");
        let cookie = cookie.and_then(|value| value.to_str().ok()?.split(';').next());
        let cookie = cookie.context("nobody was signed in")?.to_owned();
        response.into_body().collect().await?;
        Ok(self.cookie.insert(cookie))
    }

    /// Has an administrator's client make a tenant with a key of its own, which is
    /// returned with the tenant's id.
    pub(crate) async fn found(&mut self, name: &str, tier: &str) -> anyhow::Result<(Uuid, String)> {
        let tenant = json!({"name": name, "tier": tier}).to_string();
        let tenant = self.ask("POST", "/v1/tenants", &tenant).await?;
        let id: Uuid = serde_json::from_value(tenant["id"].clone())?;
        // What it does shall be bounded by nothing but what is measured.
        let any = json!({"per_second": 1e9, "at_once": 1_000_000_000,
            "max_in_flight": 1_000_000_000});
        let any = json!({"ceiling": any}).to_string();
        self.ask("PATCH", &format!("/v1/tiers/{tier}"), &any)
            .await?;
        let scopes = json!({"scopes": ["ingest", "manage", "read"]}).to_string();
        let path = format!("/v1/tenants/{id}/keys");
        let key = self.ask("POST", &path, &scopes).await?;
        let key = key["key"].as_str().context("a key has no text")?;
        Ok((id, key.to_owned()))
    }

    async fn response(
        &mut self,
        request: hyper::Request<Full<Bytes>>,
    ) -> anyhow::Result<hyper::Response<hyper::body::Incoming>> {
        self.sender
            .ready()
            .await
            .context("the API closed the connection")?;
        Ok(self.sender.send_request(request).await?)
    }
}

/// A connection from this address of the machine.
async fn connect_from(from: Ipv4Addr, address: &str) -> anyhow::Result<TcpStream> {
    Ok(socket_from(from)?.connect(address.parse()?).await?)
}

/// A socket of this address of the machine.
pub(crate) fn socket_from(from: Ipv4Addr) -> anyhow::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::from((from, 0)))?;
    Ok(socket)
}
