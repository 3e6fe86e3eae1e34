//! The dashboard and the API in this process, and browsers without a screen.

use std::sync::Arc;

use adapters::key_ring::KeyRing;
use axum::Router;
use axum::body::Body;
use engine::ports::Vault;
use engine::roles::{self, Role, Settings};
use http::{Method, Request, StatusCode, header};
use http_body_util::BodyExt;
use secrecy::SecretString;
use serde_json::{Value, json};
use server::config::{PublicUrl, TargetConfig};
use server::edge::Mint;
use server::front::{self, Front, FrontOptions};
use server::parts::Stored;
use server::portal::Portal;
use server::service::rate::ManageRates;
use tokio_util::sync::{CancellationToken, DropGuard};
use tower::ServiceExt;

use crate::place::Place;

pub(crate) const ADMIN: &str = "an administrator's key";
const SECRET_KEY: &str = "test:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
pub(crate) const HOST: &str = "127.0.0.1:8080";

pub(crate) struct World {
    router: Router,
    /// The store, as a worker has it.
    pub(crate) stored: Arc<dyn Stored>,
    _stop: DropGuard,
    _place: Place,
}

pub(crate) struct Page {
    pub(crate) status: StatusCode,
    pub(crate) headers: http::HeaderMap,
    pub(crate) text: String,
}

/// Somebody who is signed in.
#[derive(Clone)]
pub(crate) struct Visitor {
    pub(crate) cookie: String,
    pub(crate) token: String,
}

impl World {
    pub(crate) async fn over(place: Place) -> Self {
        Self::made(place, None, Portal::default()).await
    }

    /// With links that begin with this.
    pub(crate) async fn found_at(place: Place, public_url: PublicUrl) -> Self {
        Self::made(place, Some(public_url), Portal::default()).await
    }

    /// Whose pages by link look so.
    pub(crate) async fn with_portal(portal: Portal) -> Self {
        Self::made(Place::sqlite(), None, portal).await
    }

    async fn made(place: Place, public_url: Option<PublicUrl>, portal: Portal) -> Self {
        let parts = place.parts().await;
        let stop = CancellationToken::new();
        let vault: Arc<dyn Vault> = Arc::new(KeyRing::parse(SECRET_KEY).unwrap());
        let ports = parts.engine(Some(vault.clone()));
        let assembly = roles::assemble(Role::Api, &ports, Settings::of(Role::Api, 0));
        for one in assembly.loops {
            tokio::spawn(one.run(stop.clone()));
        }
        let options = FrontOptions {
            manage: ManageRates::new(server::config::MANAGE_PER_SECOND),
            public_url,
            portal,
            key: &SecretString::from(ADMIN),
            vault,
            intake: front::intake(&parts, None, assembly.entrance.unwrap()),
            target: &TargetConfig::default(),
            shutdown: stop.clone(),
        };
        let front = Front::new(&parts, Arc::new(Mint::from_system().unwrap()), options);
        Self {
            router: front.router,
            stored: parts.stored,
            _stop: stop.drop_guard(),
            _place: place,
        }
    }

    pub(crate) async fn request(&self, request: Request<Body>) -> Page {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let stream = parts.headers.get(header::CONTENT_TYPE);
        let text = match stream.is_some_and(|kind| kind == "text/event-stream") {
            // It goes on for ever.
            true => String::new(),
            false => {
                let bytes = body.collect().await.unwrap().to_bytes();
                String::from_utf8_lossy(&bytes).into_owned()
            }
        };
        Page {
            status: parts.status,
            headers: parts.headers,
            text,
        }
    }

    pub(crate) async fn api(&self, key: &str, method: Method, path: &str, body: Value) -> Value {
        let request = Request::builder().method(method).uri(path);
        let request = request
            .header("authorization", format!("Bearer {key}"))
            .header("content-type", "application/json")
            .body(Body::from(body.to_string()));
        let page = self.request(request.unwrap()).await;
        assert!(page.status.is_success(), "{path}: {}", page.text);
        serde_json::from_str(&page.text).unwrap_or(Value::Null)
    }

    /// A tenant, a key of it with these scopes, and a destination; their ids.
    pub(crate) async fn tenant(&self, name: &str, scopes: &[&str]) -> (String, String, String) {
        let body = json!({"name": name, "tier": "standard"});
        let tenant = self.api(ADMIN, Method::POST, "/v1/tenants", body).await;
        let tenant = tenant["id"].as_str().unwrap().to_owned();
        let path = format!("/v1/tenants/{tenant}/keys");
        let owner = json!({"scopes": ["ingest", "manage", "read"]});
        let owner = self.api(ADMIN, Method::POST, &path, owner).await;
        let owner = owner["key"].as_str().unwrap().to_owned();
        let body = json!({"name": format!("{name}'s"), "url": "https://example.com/hooks",
            "limits": {"per_second": 5}});
        let destination = self
            .api(&owner, Method::POST, "/v1/destinations", body)
            .await;
        let destination = destination["id"].as_str().unwrap().to_owned();
        let key = self
            .api(ADMIN, Method::POST, &path, json!({"scopes": scopes}))
            .await;
        (tenant, key["key"].as_str().unwrap().to_owned(), destination)
    }

    pub(crate) async fn sign_in(&self, key: &str) -> Visitor {
        let page = self.form("/dashboard/sign-in", None, &[("key", key)]).await;
        assert_eq!(page.status, 303, "{}", page.text);
        self.visitor(&page).await
    }

    /// Who a new cookie makes of somebody.
    pub(crate) async fn visitor(&self, page: &Page) -> Visitor {
        let cookie = page.headers[header::SET_COOKIE].to_str().unwrap();
        let mut visitor = Visitor {
            cookie: cookie.split(';').next().unwrap().to_owned(),
            token: String::new(),
        };
        let page = self.get(&visitor, "/dashboard").await;
        let (_, rest) = page.text.split_once("name=\"token\" value=\"").unwrap();
        visitor.token = rest.split('"').next().unwrap().to_owned();
        visitor
    }

    pub(crate) async fn get(&self, visitor: &Visitor, path: &str) -> Page {
        let request = Request::get(path).header("host", HOST);
        let request = request
            .header("cookie", &visitor.cookie)
            .body(Body::empty());
        self.request(request.unwrap()).await
    }

    /// Watches a page until it has said something.
    pub(crate) async fn watch(&self, visitor: &Visitor, path: &str) {
        let request = Request::get(path).header("host", HOST);
        let request = request
            .header("cookie", &visitor.cookie)
            .body(Body::empty());
        let response = self.router.clone().oneshot(request.unwrap()).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK, "{path}");
        let said = response.into_body().frame().await.unwrap().unwrap();
        let said = said.into_data().unwrap();
        assert!(said.starts_with(b"data: {"), "{path}: {said:?}");
    }

    pub(crate) async fn post(
        &self,
        visitor: &Visitor,
        path: &str,
        fields: &[(&str, &str)],
    ) -> Page {
        let token = [("token", visitor.token.as_str())];
        self.form(path, Some(visitor), &[&token[..], fields].concat())
            .await
    }

    pub(crate) async fn form(
        &self,
        path: &str,
        visitor: Option<&Visitor>,
        fields: &[(&str, &str)],
    ) -> Page {
        self.form_from(&format!("http://{HOST}"), path, visitor, fields)
            .await
    }

    pub(crate) async fn form_from(
        &self,
        origin: &str,
        path: &str,
        visitor: Option<&Visitor>,
        fields: &[(&str, &str)],
    ) -> Page {
        let body = url::form_urlencoded::Serializer::new(String::new())
            .extend_pairs(fields)
            .finish();
        let mut request = Request::post(path)
            .header("host", HOST)
            .header("origin", origin)
            .header("content-type", "application/x-www-form-urlencoded");
        if let Some(visitor) = visitor {
            request = request.header("cookie", &visitor.cookie);
        }
        self.request(request.body(Body::from(body)).unwrap()).await
    }
}
