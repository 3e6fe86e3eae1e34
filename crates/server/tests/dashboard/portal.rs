//! Pages by link as a platform's own: in its frames, by its name, in its colour; and
//! nobody else's pages, in nobody else's frames.

use axum::body::Body;
use http::{Method, Request, header};
use serde_json::json;
use server::portal::Portal;

use crate::visit::{ADMIN, HOST, Page, Visitor, World};

const PLATFORM: &str = "https://app.example";
const LOGO: &[u8] = b"\x89PNG\r\n\x1a\n and the picture";

fn portal() -> Portal {
    Portal {
        ancestors: vec![PLATFORM.parse().unwrap()],
        name: Some("Acme <hooks>".to_owned()),
        accent: Some("#ffd400".parse().unwrap()),
        logo: Some(LOGO.to_vec()),
    }
}

/// Where a request says that it comes from.
#[derive(Clone, Copy)]
struct Asks {
    /// As `Sec-Fetch-Dest`.
    dest: &'static str,
    /// As `Sec-Fetch-Site`.
    site: &'static str,
    scheme: &'static str,
}

const FRAME: Asks = Asks {
    dest: "iframe",
    site: "same-origin",
    scheme: "http",
};

const TAB: Asks = Asks {
    dest: "document",
    ..FRAME
};

async fn get(world: &World, from: Asks, cookie: &str, path: &str) -> Page {
    let request = Request::get(path).header("host", HOST);
    let request = request
        .header("sec-fetch-dest", from.dest)
        .header("cookie", cookie);
    world.request(request.body(Body::empty()).unwrap()).await
}

async fn post(
    world: &World,
    from: Asks,
    (cookie, path): (&str, &str),
    fields: &[(&str, &str)],
) -> Page {
    let body = url::form_urlencoded::Serializer::new(String::new())
        .extend_pairs(fields)
        .finish();
    let request = Request::post(path)
        .header("host", HOST)
        .header("origin", format!("{}://{HOST}", from.scheme))
        .header("sec-fetch-dest", from.dest)
        .header("sec-fetch-site", from.site)
        .header("cookie", cookie)
        .header("content-type", "application/x-www-form-urlencoded");
    world.request(request.body(Body::from(body)).unwrap()).await
}

/// The path of a new link that may change things, and the destination that it shows.
async fn link(world: &World) -> (String, String) {
    let (tenant, _, destination) = world.tenant("ours", &["read"]).await;
    let path = format!("/v1/tenants/{tenant}/links");
    let draft = json!({"may_change": true});
    let made = world.api(ADMIN, Method::POST, &path, draft).await;
    (made["url"].as_str().unwrap().to_owned(), destination)
}

async fn guest(world: &World, from: Asks, link: &str) -> (Visitor, String) {
    let opened = post(world, from, ("", link), &[]).await;
    assert_eq!(opened.status, 303, "{}", opened.text);
    let cookie = opened.headers[header::SET_COOKIE].to_str().unwrap();
    let cookie = cookie.to_owned();
    (world.visitor(&opened).await, cookie)
}

/// By both headers that browsers obey.
#[track_caller]
fn is_framed(page: &Page) -> bool {
    let policy = page.headers["content-security-policy"].to_str().unwrap();
    let (_, ancestors) = policy.split_once("frame-ancestors ").unwrap();
    let never = page.headers.get("x-frame-options");
    match ancestors {
        PLATFORM => assert_eq!(never, None, "{policy}"),
        "'none'" => assert_eq!(never.unwrap(), "DENY"),
        _ => panic!("{policy}"),
    }
    assert!(policy.contains("default-src 'none'"), "{policy}");
    ancestors == PLATFORM
}

#[tokio::test]
async fn a_guests_pages_are_framed_and_nobody_elses() {
    let world = World::with_portal(portal()).await;
    let (link, destination) = link(&world).await;
    let destination = format!("/dashboard/destinations/{destination}");
    let (guest, _) = guest(&world, FRAME, &link).await;
    let operator = world.sign_in(ADMIN).await;
    for from in [FRAME, TAB] {
        for path in ["/dashboard", "/dashboard/events", &destination] {
            let page = get(&world, from, &guest.cookie, path).await;
            assert_eq!(
                (page.status.as_u16(), is_framed(&page)),
                (200, true),
                "{path}"
            );
            let page = get(&world, from, &operator.cookie, path).await;
            assert_eq!(
                (page.status.as_u16(), is_framed(&page)),
                (200, false),
                "{path}"
            );
        }
        assert!(is_framed(&get(&world, from, "", &link).await), "to open it");
        // What a guest may not do is said where he is.
        let page = get(&world, from, &guest.cookie, "/dashboard/tenants").await;
        assert_eq!((page.status.as_u16(), is_framed(&page)), (403, true));
    }
    // Nobody signs in with a key in a frame, or is sent there.
    for path in ["/dashboard", "/dashboard/sign-in", "/dashboard/links/none"] {
        let page = get(&world, FRAME, "", path).await;
        assert!(page.status.is_client_error() && is_framed(&page), "{path}");
        assert!(!page.text.contains("API key"), "{}", page.text);
        assert!(!is_framed(&get(&world, TAB, "", path).await), "{path}");
    }
}

/// A frame is loaded again with its platform's page, by the link's address.
#[tokio::test]
async fn a_link_that_was_opened_here_needs_no_second_click() {
    let world = World::with_portal(portal()).await;
    let (path, _) = link(&world).await;
    let (guest, _) = guest(&world, FRAME, &path).await;
    let again = get(&world, FRAME, &guest.cookie, &path).await;
    assert_eq!(again.status, 303, "{}", again.text);
    assert_eq!(again.headers[header::LOCATION], "/dashboard");
    assert_eq!(again.headers.get(header::SET_COOKIE), None);
    // Whoever has another session, or none, is asked: it would open other pages.
    let (_, key, _) = world.tenant("theirs", &["read"]).await;
    let theirs = world.sign_in(&key).await;
    for cookie in ["", theirs.cookie.as_str()] {
        let asks = get(&world, FRAME, cookie, &path).await;
        assert_eq!(asks.status, 200, "{cookie}");
        assert!(asks.text.contains("<form"), "{}", asks.text);
    }
    let (other, _) = link(&world).await;
    assert_eq!(get(&world, FRAME, &guest.cookie, &other).await.status, 200);
    // Nor after it was signed out.
    let held = (guest.cookie.as_str(), "/dashboard/sign-out");
    post(&world, FRAME, held, &[("token", &guest.token)]).await;
    assert_eq!(get(&world, FRAME, &guest.cookie, &path).await.status, 200);
}

#[tokio::test]
async fn a_cookie_is_sent_to_other_sites_frames_only_where_those_are_allowed() {
    let world = World::with_portal(portal()).await;
    let (path, _) = link(&world).await;
    let tls = Asks {
        scheme: "https",
        ..FRAME
    };
    for (from, name, keeps) in [
        (
            FRAME,
            "paceline-guest=",
            "; HttpOnly; SameSite=None; Secure; Partitioned",
        ),
        (
            tls,
            "__Host-paceline-guest=",
            "; HttpOnly; SameSite=None; Secure; Partitioned",
        ),
        (TAB, "paceline-session=", "; HttpOnly; SameSite=Strict"),
    ] {
        let (guest, cookie) = guest(&world, from, &path).await;
        assert!(
            cookie.starts_with(name) && cookie.ends_with(keeps),
            "{cookie}"
        );
        // Signing out takes the same one back.
        let token = [("token", guest.token.as_str())];
        let held = (guest.cookie.as_str(), "/dashboard/sign-out");
        let out = post(&world, from, held, &token).await;
        let cookie = out.headers[header::SET_COOKIE].to_str().unwrap();
        assert!(
            cookie.starts_with(name) && cookie.ends_with(keeps),
            "{cookie}"
        );
        assert!(cookie.contains("Max-Age=0"), "{cookie}");
    }
    // Neither a key's session, nor any where nobody may frame anything.
    let signed_in = post(&world, FRAME, ("", "/dashboard/sign-in"), &[("key", ADMIN)]).await;
    let nobody = World::with_portal(Portal::default()).await;
    let (path, _) = link(&nobody).await;
    let opened = post(&nobody, FRAME, ("", &path), &[]).await;
    for page in [signed_in, opened] {
        let cookie = page.headers[header::SET_COOKIE].to_str().unwrap();
        assert!(cookie.contains("SameSite=Strict"), "{cookie}");
        assert!(!is_framed(&page));
    }
}

/// The cookie comes with forms of other sites now; so it proves nothing.
#[tokio::test]
async fn a_form_in_a_frame_needs_its_token_and_our_page() {
    let world = World::with_portal(portal()).await;
    let (link, destination) = link(&world).await;
    let (guest, _) = guest(&world, FRAME, &link).await;
    let state = format!("/dashboard/destinations/{destination}/state");
    let held = (guest.cookie.as_str(), state.as_str());
    let fields = [("token", guest.token.as_str()), ("state", "paused")];
    for site in ["cross-site", "same-site", "none"] {
        let from = Asks { site, ..FRAME };
        assert_eq!(
            post(&world, from, held, &fields).await.status,
            403,
            "{site}"
        );
        let opened = post(&world, from, ("", &link), &[]).await;
        assert_eq!(opened.status, 403, "{site}");
    }
    let without = post(&world, FRAME, held, &[("state", "paused")]).await;
    assert_eq!(without.status, 403);
    let shown = async || {
        let path = format!("/v1/destinations/{destination}");
        let headers = format!("/dashboard/destinations/{destination}");
        let page = get(&world, FRAME, &guest.cookie, &headers).await;
        assert_eq!(page.status, 200, "{path}");
        page.text.contains("id=\"resume\"")
    };
    assert!(!shown().await, "it is not paused");
    assert_eq!(post(&world, FRAME, held, &fields).await.status, 303);
    assert!(shown().await, "it is paused");
}

/// An operator looks at a customer's frame, and stays an operator elsewhere.
#[tokio::test]
async fn a_frame_and_a_tab_have_sessions_of_their_own() {
    let world = World::with_portal(portal()).await;
    let (link, _) = link(&world).await;
    let (guest, _) = guest(&world, FRAME, &link).await;
    let operator = world.sign_in(ADMIN).await;
    for both in [
        format!("{}; {}", operator.cookie, guest.cookie),
        format!("{}; {}", guest.cookie, operator.cookie),
    ] {
        let page = get(&world, FRAME, &both, "/dashboard").await;
        assert!(is_framed(&page) && page.text.contains(&guest.token));
        let page = get(&world, TAB, &both, "/dashboard").await;
        assert!(!is_framed(&page) && page.text.contains(&operator.token));
    }
}

#[tokio::test]
async fn a_guest_sees_the_platforms_name_colour_and_logo() {
    let world = World::with_portal(portal()).await;
    let (link, _) = link(&world).await;
    let (guest, _) = guest(&world, TAB, &link).await;
    let operator = world.sign_in(ADMIN).await;
    let page = get(&world, TAB, &guest.cookie, "/dashboard").await.text;
    assert!(
        page.contains("<title>Overview · Acme &#60;hooks&#62;</title>"),
        "{page}"
    );
    let opens = get(&world, TAB, "", &link).await.text;
    let refused = get(&world, TAB, &guest.cookie, "/dashboard/tenants")
        .await
        .text;
    for page in [&page, &opens, &refused] {
        assert!(
            page.contains("Acme &#60;hooks&#62;") && !page.contains("Paceline"),
            "{page}"
        );
    }
    let operators = get(&world, TAB, &operator.cookie, "/dashboard").await.text;
    assert!(
        operators.contains("Paceline") && !operators.contains("Acme"),
        "{operators}"
    );
    for (before, kind, says) in [
        ("<img src=\"", "image/png", "PNG"),
        (
            "<link rel=\"stylesheet\" href=\"/dashboard/assets/brand",
            "text/css; charset=utf-8",
            "--fill: #ffd400",
        ),
    ] {
        let (at, _) = page.match_indices(before).next().unwrap();
        let path = page[at..].split("=\"").find(|part| part.starts_with('/'));
        let path = path.unwrap().split('"').next().unwrap();
        assert!(!operators.contains(path), "{path}");
        let request = Request::get(path).body(Body::empty()).unwrap();
        let asset = world.request(request).await;
        assert_eq!(asset.headers[header::CONTENT_TYPE], kind, "{path}");
        assert_eq!(asset.headers["x-content-type-options"], "nosniff");
        assert!(asset.text.contains(says), "{path}");
    }
}
