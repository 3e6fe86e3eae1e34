//! Signing secrets: a new one, and the end of one.

use std::time::Duration;

use axum::extract::{Path, State};
use axum::response::{Html, Response};
use domain::access::Scope;
use domain::ids::{DestinationId, SecretId};
use engine::ports::{Destination, Secret};

use super::Asked;
use super::destination::{Beside, done, page, parsed};
use super::refused::Refused;
use super::sure::{self, Question};
use super::visitor::{Fields, Posted};
use super::words;
use crate::service::Service;
use crate::service::secrets::{DEFAULT_OVERLAP, MAX_OVERLAP, SecretDraft};

/// For how long the secrets before a new one go on signing: in words and in seconds.
pub(super) const OVERLAPS: [(&str, u64); 4] = [
    ("a day", DEFAULT_OVERLAP.as_secs()),
    ("an hour", 3_600),
    ("seven days", MAX_OVERLAP.as_secs()),
    ("no longer", 0),
];

/// One that signs, without the secret.
pub(super) struct Line {
    pub(super) id: SecretId,
    pub(super) kind: &'static str,
    pub(super) added: String,
    /// When it ends.
    pub(super) until: String,
}

impl From<Secret> for Line {
    fn from(secret: Secret) -> Self {
        Self {
            id: secret.id,
            kind: secret.kind.as_str(),
            added: words::time(secret.created_at),
            until: secret.expires_at.map_or("for good".to_owned(), words::time),
        }
    }
}

/// Those of a destination, the newest first.
pub(super) async fn lines(service: &Service, id: DestinationId) -> Result<Vec<Line>, Refused> {
    let found = service.secrets(id).await?;
    Ok(found.into_iter().map(Line::from).collect())
}

/// A new secret, shown in this answer and never again: to a guest as well, who may say
/// where requests go, and so what they are signed with.
pub(super) async fn rotate(
    State(pages): Asked,
    Path(id): Path<String>,
    Posted {
        visitor, fields, ..
    }: Posted,
) -> Result<Html<String>, Refused> {
    visitor.needs(Scope::Manage)?;
    let id = parsed(&id)?;
    let (words, overlap) = overlap(&fields)?;
    let draft = SecretDraft {
        own: None,
        kind: None,
    };
    let service = pages.service(visitor.tenant());
    let (made, _) = service.rotate_secret(id, draft, overlap).await?;
    let beside = Beside {
        new_secret: made.shown_once.map(|secret| secret.expose().to_owned()),
        notice: format!("Rotated. The secrets before it sign {words}."),
        ..Beside::default()
    };
    page(&pages, &visitor, id, beside).await
}

/// The usual one, if nothing is said.
fn overlap(fields: &Fields) -> Result<(String, Duration), Refused> {
    let wanted = fields.get("overlap");
    let chosen = |(_, seconds): &(_, u64)| wanted.is_none_or(|said| said == seconds.to_string());
    let found = OVERLAPS.into_iter().find(chosen);
    let (words, seconds) = found.ok_or_else(|| Refused::invalid("overlap: no such time"))?;
    let words = match seconds {
        0 => words.to_owned(),
        _ => format!("for {words} longer"),
    };
    Ok((words, Duration::from_secs(seconds)))
}

/// Deletes one that signs, but not the last one.
pub(super) async fn delete(
    State(pages): Asked,
    Path((id, secret)): Path<(String, String)>,
    Posted {
        visitor, fields, ..
    }: Posted,
) -> Result<Response, Refused> {
    visitor.needs(Scope::Manage)?;
    let id = parsed(&id)?;
    let missing = || Refused::not_found("secret");
    let secret: SecretId = secret.parse().map_err(|_bad| missing())?;
    let service = pages.service(visitor.tenant());
    if !sure::is_sure(&fields) {
        let destination = service.destination(id).await?.destination;
        let found = service.secrets(id).await?;
        let found = found.iter().find(|one| one.id == secret);
        let question = deleting(&destination, found.ok_or_else(missing)?);
        return sure::ask(&pages, &visitor, "/dashboard", question).await;
    }
    service.delete_secret(id, secret).await?;
    Ok(done(id, "secret-deleted"))
}

fn deleting(destination: &Destination, secret: &Secret) -> Question {
    let back = format!("/dashboard/destinations/{}", destination.id);
    let (kind, added) = (secret.kind.as_str(), words::time(secret.created_at));
    Question {
        asks: format!("Delete the {kind} secret of {added}?"),
        does: vec![
            format!(
                "From now on no request to {} is signed with it.",
                destination.called()
            ),
            "A receiver that knows no other secret refuses them. To change over, rotate first."
                .to_owned(),
        ],
        action: format!("{back}/secrets/{}", secret.id),
        fields: Vec::new(),
        button: "Delete it",
        back,
    }
}
