//! What a path names: by our id, or by the id that its platform has given it.

use std::str::FromStr;
use std::sync::Arc;

use domain::external_id::ExternalId;
use domain::ids::{DestinationId, EventId, NoticeAddressId, ReplayId, TenantId};
use http::request::Parts;
use utoipa::openapi::path::Parameter;
use utoipa::openapi::schema::SchemaType;
use utoipa::openapi::{ObjectBuilder, OpenApi, RefOr, Schema, Type};
use uuid::Uuid;

use super::App;
use super::caller::{service_of, to_its_end};
use super::problem::Problem;

/// A kind of id, and whether callers have their own for what it names.
pub trait Named: FromStr<Err: ToString> + Send + Sized {
    /// The one that its platform calls so; `None` where nothing of this kind is.
    fn called(
        id: ExternalId,
        parts: &Parts,
        app: &App,
    ) -> impl Future<Output = Option<Result<Self, Problem>>> + Send {
        let _ = (id, parts, app);
        async { None }
    }
}

/// An attempt's.
impl Named for i64 {}
impl Named for EventId {}
impl Named for NoticeAddressId {}
impl Named for ReplayId {}
/// A limit request's.
impl Named for Uuid {}

impl Named for DestinationId {
    async fn called(id: ExternalId, parts: &Parts, app: &App) -> Option<Result<Self, Problem>> {
        let service = match service_of(parts, app) {
            Ok(service) => service,
            Err(problem) => return Some(Err(problem)),
        };
        Some(to_its_end(async move { service.destination_called(&id).await }).await)
    }
}

/// Only administrators name tenants in a path.
impl Named for TenantId {
    async fn called(id: ExternalId, _: &Parts, app: &App) -> Option<Result<Self, Problem>> {
        let tenancy = Arc::clone(app.tenancy());
        let found = to_its_end(async move { tenancy.tenant_called(&id).await }).await;
        Some(found.map(|tenant| tenant.id))
    }
}

/// What this text in a path names, by the field that a problem is told of.
pub(super) async fn named<T: Named>(
    (field, text): (&str, &str),
    parts: &Parts,
    app: &App,
) -> Result<T, Problem> {
    let problem = match text.parse::<T>() {
        Ok(id) => return Ok(id),
        Err(problem) => Problem::invalid(field, problem.to_string()),
    };
    match text.parse() {
        Ok(external) => T::called(external, parts, app)
            .await
            .unwrap_or(Err(problem)),
        Err(_neither) => Err(problem),
    }
}

/// Says so of the paths whose `{id}` may be the caller's own.
pub(super) fn describe(document: &mut OpenApi) {
    for (path, item) in &mut document.paths.paths {
        let own = [
            "/v1/destinations/{id}",
            "/v1/operational-destinations/{id}",
            "/v1/tenants/{id}",
        ];
        if !own.iter().any(|own| path.starts_with(own)) {
            continue;
        }
        let each = [
            &mut item.get,
            &mut item.put,
            &mut item.post,
            &mut item.delete,
            &mut item.patch,
        ];
        let parameters = each
            .into_iter()
            .flatten()
            .filter_map(|one| one.parameters.as_mut());
        for parameter in parameters.flatten() {
            if let RefOr::T(parameter) = parameter
                && parameter.name == "id"
                && parameter.description.is_none()
            {
                open(parameter);
            }
        }
    }
}

fn open(parameter: &mut Parameter) {
    let text = ObjectBuilder::new().schema_type(SchemaType::new(Type::String));
    parameter.schema = Some(RefOr::T(Schema::Object(text.build())));
    parameter.description = Some("Its id, or what you call it: its `external_id`.".to_owned());
}
