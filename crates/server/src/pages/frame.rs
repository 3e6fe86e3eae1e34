//! What is around every page.

use std::sync::Arc;

use askama::Template;
use axum::response::Html;
use domain::access::Scope;

use super::guest::{Brand, is_guest};
use super::refused::Refused;
use super::visitor::Visitor;
use super::{Pages, assets};
use domain::ids::TenantId;
use engine::ports::{DEFAULT_TENANT, SessionKind};

/// Title, navigation, and who is signed in.
#[derive(Debug, Clone)]
pub(super) struct Frame {
    pub(super) title: String,
    /// The path of the part of the navigation that this is in.
    pub(super) part: &'static str,
    /// `None` where nobody is signed in.
    pub(super) visitor: Option<Known>,
    pub(super) style: &'static str,
    pub(super) script: &'static str,
    pub(super) icon: &'static str,
    /// What guests see instead of our name.
    pub(super) brand: Option<Arc<Brand>>,
}

/// Who is signed in.
#[derive(Debug, Clone)]
pub(super) struct Known {
    pub(super) tenant: String,
    pub(super) token: String,
    pub(super) may_manage: bool,
    pub(super) is_operator: bool,
    pub(super) by_link: bool,
    /// Of an operator who looks at another tenant's things.
    pub(super) away: Option<Away>,
}

/// Whose things an operator looks at, and how he comes back to his own.
#[derive(Debug, Clone)]
pub(super) struct Away {
    /// The session shows that tenant's pages until it is moved back; else the next
    /// page is the operator's own again.
    pub(super) for_good: bool,
    /// Where the session goes back to.
    pub(super) home: TenantId,
}

impl Frame {
    pub(super) fn nobody(title: &str) -> Self {
        Self {
            title: title.to_owned(),
            part: "",
            visitor: None,
            style: assets::style(),
            script: assets::script(),
            icon: assets::icon(),
            brand: None,
        }
    }

    /// As a guest of these pages sees it.
    pub(super) fn branded(mut self, pages: Option<&Pages>) -> Self {
        self.brand = pages.map(|pages| Arc::clone(pages.0.portal.brand()));
        self
    }

    /// What the pages are called.
    pub(super) fn called(&self) -> &str {
        let name = self.brand.as_ref().and_then(|brand| brand.name.as_deref());
        name.unwrap_or("Paceline")
    }

    /// Where the style of the brand is.
    pub(super) fn brand_style(&self) -> Option<&str> {
        self.brand.as_ref().and_then(|brand| brand.style())
    }

    /// Where its logo is.
    pub(super) fn logo(&self) -> Option<&str> {
        self.brand.as_ref().and_then(|brand| brand.logo())
    }

    pub(super) async fn of(
        pages: &Pages,
        visitor: &Visitor,
        (title, part): (&str, &'static str),
    ) -> Result<Self, Refused> {
        let tenant = pages.0.app.tenancy().tenant(visitor.tenant()).await?;
        Ok(Self {
            part,
            visitor: Some(Known {
                tenant: tenant.name,
                token: visitor.token.clone(),
                may_manage: visitor.may(Scope::Manage),
                is_operator: visitor.may(Scope::Admin),
                by_link: visitor.session.kind == SessionKind::Opened,
                away: away(visitor),
            }),
            ..Self::nobody(title).branded(is_guest(&visitor.session).then_some(pages))
        })
    }

    /// The token that every form carries.
    pub(super) fn token(&self) -> &str {
        self.visitor.as_ref().map_or("", |known| &known.token)
    }

    pub(super) fn may_manage(&self) -> bool {
        self.visitor.as_ref().is_some_and(|known| known.may_manage)
    }

    pub(super) fn is_operator(&self) -> bool {
        self.visitor.as_ref().is_some_and(|known| known.is_operator)
    }

    /// Beside a link of the navigation: where one is.
    pub(super) fn here(&self, part: &str) -> &'static str {
        match self.part == part {
            true => "page",
            false => "false",
        }
    }
}

/// Only the default tenant has operators.
fn away(visitor: &Visitor) -> Option<Away> {
    (visitor.is_operator() && visitor.tenant() != DEFAULT_TENANT).then(|| Away {
        for_good: visitor.home() != DEFAULT_TENANT,
        home: DEFAULT_TENANT,
    })
}

pub(super) fn rendered(page: &impl Template) -> Result<Html<String>, Refused> {
    let text = page.render().map_err(|error| Refused::broken(&error))?;
    Ok(Html(text))
}
