//! A tenant's keys are added and revoked, by operators.

use std::time::Duration;

use axum::extract::{Path, State};
use axum::response::{Html, IntoResponse, Redirect, Response};
use domain::access::{KeyId, Scope};
use domain::ids::TenantId;
use engine::ports::BehindSession;
use secrecy::ExposeSecret;

use super::frame::rendered;
use super::refused::Refused;
use super::sure::{self, Question};
use super::tenant::{Beside, page, parsed};
use super::tenants::PART;
use super::visitor::Posted;
use super::{Asked, Pages, typed, words};
use crate::service::tenancy::KeyDraft;

pub(super) async fn create(
    State(pages): Asked,
    Path(id): Path<String>,
    Posted {
        visitor, fields, ..
    }: Posted,
) -> Result<Html<String>, Refused> {
    visitor.needs(Scope::Admin)?;
    let id = parsed(&id)?;
    let days: Option<u32> = typed::number(&fields, "days")?;
    let named = |scope: &Scope| fields.has(&format!("scope_{scope}"));
    let draft = KeyDraft {
        name: fields.get("name").unwrap_or_default().to_owned(),
        scopes: Scope::ALL.into_iter().filter(named).collect(),
        expires_in: days.map(|days| Duration::from_secs(u64::from(days) * 86_400)),
    };
    let (_, text) = pages.0.app.tenancy().create_key(id, draft).await?;
    let beside = Beside::new_key(text.expose_secret());
    rendered(&page(&pages, &visitor, id, beside).await?)
}

pub(super) async fn revoke(
    State(pages): Asked,
    Path((id, key)): Path<(String, String)>,
    Posted {
        visitor, fields, ..
    }: Posted,
) -> Result<Response, Refused> {
    visitor.needs(Scope::Admin)?;
    let id = parsed(&id)?;
    let key: KeyId = key.parse().map_err(|_bad| Refused::not_found("key"))?;
    if !sure::is_sure(&fields) {
        let question = revoking(&pages, id, key).await?;
        return sure::ask(&pages, &visitor, PART, question).await;
    }
    pages.0.app.tenancy().revoke_key(id, key).await?;
    Ok(Redirect::to(&format!("{PART}/{id}")).into_response())
}

async fn revoking(pages: &Pages, tenant: TenantId, id: KeyId) -> Result<Question, Refused> {
    let tenancy = pages.0.app.tenancy();
    let found = tenancy.keys(tenant).await?;
    let key = found.into_iter().find(|key| key.id == id);
    let key = key.ok_or_else(|| Refused::not_found("key"))?;
    let links = tenancy.links().list(tenant).await?;
    let behind = BehindSession::Key(id);
    let ends = links.iter().filter(|link| link.behind == behind).count();
    let used = key.last_used_at.map_or("never".to_owned(), words::time);
    Ok(Question {
        asks: match key.name.is_empty() {
            true => format!("Revoke the key {id}?"),
            false => format!("Revoke the key {}?", key.name),
        },
        does: vec![
            format!(
                "Whoever calls with it is refused within 5 seconds, for good. It was last used: {used}."
            ),
            format!(
                "Whoever is signed in with it is signed out, and {ends} open links to this tenant's pages that were made with it end."
            ),
        ],
        action: format!("{PART}/{tenant}/keys/{id}"),
        fields: Vec::new(),
        button: "Revoke it",
        back: format!("{PART}/{tenant}"),
    })
}
