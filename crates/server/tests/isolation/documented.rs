//! The table of scopes in `docs/tenants.md` is that of the description.

use std::collections::BTreeSet;

use http::Method;

use crate::walk;

const PAGE: &str = include_str!("../../../../docs/tenants.md");

/// `| POST /v1/events | ingest |`
fn documented() -> BTreeSet<String> {
    let rows = PAGE.lines().filter_map(|line| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let route = cells.first()?.trim_matches('`');
        let (method, path) = route.split_once(' ')?;
        let ours = path.starts_with("/v1/") && method.parse::<Method>().is_ok();
        ours.then(|| format!("{route} {}", cells.get(1).unwrap_or(&"")))
    });
    rows.collect()
}

#[test]
fn the_table_of_scopes_is_that_of_the_description() {
    let required = server::api::required();
    let described: BTreeSet<String> = (walk::described().into_iter())
        .map(|route| {
            let (method, path) = route.split_once(' ').unwrap();
            let scope = required.scope(path, &method.parse().unwrap());
            let scope = scope.map_or("nobody", |scope| scope.as_str());
            format!("{route} `{scope}`")
        })
        .collect();
    assert_eq!(documented(), described);
}
