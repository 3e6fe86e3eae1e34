//! Every answer is described: a document with one that is not is invalid, and
//! generators of clients refuse it.

use utoipa::openapi::path::Operation;
use utoipa::openapi::{OpenApi, RefOr};

/// What can be called, on all routes.
pub(crate) fn operations(document: &mut OpenApi) -> impl Iterator<Item = &mut Operation> {
    let items = document.paths.paths.values_mut();
    items.flat_map(|item| {
        let operations = [
            &mut item.get,
            &mut item.put,
            &mut item.post,
            &mut item.delete,
            &mut item.patch,
        ];
        operations.into_iter().flatten()
    })
}

/// Describes what its route does not.
pub(super) fn describe(document: &mut OpenApi) {
    for operation in operations(document) {
        for (status, response) in &mut operation.responses.responses {
            if let RefOr::T(response) = response
                && response.description.is_empty()
            {
                usual(status).clone_into(&mut response.description);
            }
        }
    }
}

fn usual(status: &str) -> &'static str {
    match status {
        "4XX" => "Refused; the problem says why.",
        "503" => "Overloaded, or a part is unavailable: try again later.",
        _ => "Done.",
    }
}
