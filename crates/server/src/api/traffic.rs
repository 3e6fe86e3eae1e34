//! Requests, counted and timed by route.

use axum::extract::{MatchedPath, Request};
use axum::middleware::Next;
use axum::response::Response;
use tokio::time::Instant;

pub(super) async fn measure(request: Request, next: Next) -> Response {
    // The route and not the path: ids would make a series each.
    let route = request
        .extensions()
        .get::<MatchedPath>()
        .map_or_else(|| "none".to_owned(), |path| path.as_str().to_owned());
    let method = request.method().as_str().to_owned();
    let began = Instant::now();
    let response = next.run(request).await;
    let labels = [
        ("route", route),
        ("method", method),
        ("status", response.status().as_u16().to_string()),
    ];
    metrics::histogram!("paceline_api_request_seconds", &labels).record(began.elapsed());
    response
}
