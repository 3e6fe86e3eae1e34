//! Who is known at the door, and keeps his place there: whoever has a good key or session.

use crate::world::{ADMIN, World};

/// Whatever comes of the request. Through a router it is the shard who knows.
pub(crate) async fn who_has_a_good_key_or_session_is_known_and_nobody_else(world: &World) {
    let door = world.door().await;
    let theirs = &world.theirs.key;
    let form = format!("key={theirs}");
    let entered = world.page("", "/dashboard/sign-in", Some(&form)).await;
    let (name, _) = entered.cookie.split_once('=').unwrap();
    let with = |key: &str| format!("authorization: Bearer {key}");
    for (path, header, status, is_known) in [
        ("/v1/destinations", with(theirs), 200, true),
        ("/v1/tenants", with(theirs), 403, true),
        ("/v1/tenants", with(ADMIN), 200, true),
        ("/v1/destinations", with("nobody's"), 401, false),
        ("/v1/tenants", with("nobody's"), 401, false),
        (
            "/dashboard",
            format!("cookie: {}", entered.cookie),
            200,
            true,
        ),
        ("/dashboard", format!("cookie: {name}=nobodys"), 303, false),
        ("/dashboard/sign-in", "accept: */*".to_owned(), 200, false),
    ] {
        let answered = door.answers(path, &header).await;
        assert_eq!(answered, (status, is_known), "{path}, {header}");
    }
}
