//! Why a page is not shown, in words.

use std::fmt::Display;
use std::sync::Arc;

use axum::Extension;
use axum::response::{Html, IntoResponse, Redirect, Response};
use domain::access::Scope;
use http::StatusCode;

use super::frame::{Frame, rendered};
use super::guest::Brand;
use crate::api::problem::Problem;
use crate::service::ServiceError;

/// A page that is not shown, or a form that was not done.
#[derive(Debug)]
pub(super) enum Refused {
    /// Nobody is signed in.
    SignIn,
    /// The session lacks a scope.
    Scope(Scope),
    /// As an answer.
    Problem(StatusCode, String),
}

impl Refused {
    pub(super) fn new(status: StatusCode, words: impl Into<String>) -> Self {
        Self::Problem(status, words.into())
    }

    pub(super) fn not_found(what: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, format!("There is no such {what}."))
    }

    pub(super) fn invalid(words: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, words)
    }

    pub(super) fn unavailable(words: &str) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, words)
    }

    /// What is wrong with a form, to be said beside it; anything else stays what it is.
    pub(super) fn said(self) -> Result<String, Self> {
        match self {
            Self::Problem(status, words) if status.is_client_error() => Ok(words),
            other => Err(other),
        }
    }

    pub(super) fn broken(error: &dyn Display) -> Self {
        tracing::error!(%error, "a page broke");
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "Something broke; it is in the log.",
        )
    }
}

impl From<ServiceError> for Refused {
    fn from(error: ServiceError) -> Self {
        match &error {
            ServiceError::NotFound(what) => Self::not_found(what),
            ServiceError::Conflict(_) => Self::new(StatusCode::CONFLICT, error.to_string()),
            ServiceError::Unavailable(_) | ServiceError::Overloaded(_) => {
                tracing::warn!(%error, "a page could not ask the store");
                Self::unavailable("The store does not answer. Try again in a moment.")
            }
            ServiceError::Lost(_) => Self::unavailable(
                "The store is lost: nothing can be changed until whoever runs Paceline has \
                 brought its database back. The log says more.",
            ),
            ServiceError::Busy(_) => {
                let words = "Too many pages of this tenant are being read. Try again in a moment.";
                Self::new(StatusCode::TOO_MANY_REQUESTS, words)
            }
            ServiceError::TooManyChanges { .. } | ServiceError::TooFast { .. } => Self::new(
                StatusCode::TOO_MANY_REQUESTS,
                format!("There were {error}."),
            ),
            ServiceError::Internal(_) => Self::broken(&error),
            _ => Self::invalid(error.to_string()),
        }
    }
}

impl From<Problem> for Refused {
    fn from(problem: Problem) -> Self {
        let status = StatusCode::from_u16(problem.status);
        Self::new(status.unwrap_or(StatusCode::BAD_REQUEST), problem.detail)
    }
}

impl From<engine::ports::CatalogError> for Refused {
    fn from(error: engine::ports::CatalogError) -> Self {
        ServiceError::from(error).into()
    }
}

impl From<engine::ports::StoreError> for Refused {
    fn from(error: engine::ports::StoreError) -> Self {
        ServiceError::from(error).into()
    }
}

#[derive(askama::Template)]
#[template(path = "refused.html")]
struct Page {
    frame: Frame,
    words: String,
}

/// Why, for the page that guests see; and where nobody is signed in, what is said in a
/// frame, where nobody can.
#[derive(Debug, Clone)]
pub(super) struct Said(pub(super) String);

/// The page of a guest.
pub(super) fn page(words: String, brand: &Arc<Brand>) -> Html<String> {
    let mut frame = Frame::nobody("Not done");
    frame.brand = Some(Arc::clone(brand));
    rendered(&Page { frame, words }).unwrap_or_else(|_| Html(String::new()))
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        match self {
            Self::Scope(scope) => {
                let words = format!("This needs a key with the scope {scope}.");
                Self::new(StatusCode::FORBIDDEN, words).into_response()
            }
            Self::SignIn => {
                let said = "You are signed out here, or were not signed in. Open the link again, \
                            or load the page around this one again.";
                let to = Redirect::to("/dashboard/sign-in");
                (Extension(Said(said.to_owned())), to).into_response()
            }
            Self::Problem(status, words) => {
                let frame = Frame::nobody("Not done");
                let said = Extension(Said(words.clone()));
                let page = rendered(&Page { frame, words });
                let page = page.unwrap_or_else(|_| Html(String::new()));
                (status, said, page).into_response()
            }
        }
    }
}
