//! Every answer is described: a document with one that is not is invalid, and
//! generators of clients refuse it.

use utoipa::openapi::{OpenApi, RefOr};

/// Describes what its route does not.
pub(super) fn describe(document: &mut OpenApi) {
    for item in document.paths.paths.values_mut() {
        let operations = [
            &mut item.get,
            &mut item.put,
            &mut item.post,
            &mut item.delete,
            &mut item.patch,
        ];
        for operation in operations.into_iter().flatten() {
            for (status, response) in &mut operation.responses.responses {
                if let RefOr::T(response) = response
                    && response.description.is_empty()
                {
                    usual(status).clone_into(&mut response.description);
                }
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
