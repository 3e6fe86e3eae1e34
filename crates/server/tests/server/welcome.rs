//! What `serve` says to whoever starts it.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;

use crate::process::{Server, free_port, get, paceline, poll};

fn serve(folder: &Path, port: u16, log: &str) -> std::process::Command {
    let mut command = paceline(folder);
    command
        .args(["--log", log, "serve", "--listen"])
        .arg(format!("127.0.0.1:{port}"));
    command
}

#[test]
fn serve_says_where_the_pages_and_the_data_are_and_what_is_next() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let port = free_port();
    let said = folder.join("said");
    let server = Server::of(serve(folder, port, "off").stdout(File::create(&said).unwrap()));
    let lines: Vec<String> = poll("it says the last line", || {
        let text = fs::read_to_string(&said).ok()?;
        let whole = text.ends_with('\n') && text.contains("Next, ");
        whole.then(|| text.lines().map(str::to_owned).collect())
    });
    let [key, dashboard, database, next] = &lines[..] else {
        panic!("{lines:#?}");
    };
    assert!(key.starts_with("API key: "), "{key}");
    let origin = format!("http://127.0.0.1:{port}");
    let link = dashboard.strip_prefix(&format!("Dashboard: {origin}"));
    let (link, how) = link.unwrap().split_once(' ').unwrap();
    let says = "(signs you in once, within 15 minutes; then";
    assert_eq!(how, format!("{says} {origin}/dashboard with the key)"));
    signs_in_once(port, link);
    let file = folder.join("paceline.db");
    assert_eq!(*database, format!("Database: {}", file.display()));
    let (_, command) = next.split_once("in this folder: ").unwrap();
    let (program, arguments) = command.split_once(' ').unwrap();
    assert!(
        program == "paceline" || Path::new(program).is_file(),
        "{next}"
    );
    // It works as it stands there.
    let created = paceline(folder).args(arguments.split(' ')).output();
    let created = created.unwrap();
    let problem = String::from_utf8_lossy(&created.stderr);
    assert!(created.status.success(), "{problem}");
    server.stop();
    // What it is was said, and is kept nowhere.
    let secret = link.rsplit('/').next().unwrap().as_bytes();
    for file in fs::read_dir(folder).unwrap() {
        let file = file.unwrap().path();
        let kept = fs::read(&file).unwrap();
        let is_there = kept.windows(secret.len()).any(|part| part == secret);
        assert_eq!(is_there, file == said, "{}", file.display());
    }
}

/// One request, as a browser makes it from a page of ours.
fn request(port: u16, first: &str, cookie: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    write!(
        stream,
        "{first} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nconnection: close\r\n\
         sec-fetch-site: same-origin\r\ncookie: {cookie}\r\n\
         content-type: application/x-www-form-urlencoded\r\ncontent-length: 0\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Looking at it does not use it up. Whoever came first is signed in as with the key.
fn signs_in_once(port: u16, link: &str) {
    for _ in 0..2 {
        let page = get(port, link).unwrap();
        assert!(page.starts_with("HTTP/1.1 200"), "{page}");
    }
    let opened = request(port, &format!("POST {link}"), "");
    assert!(opened.starts_with("HTTP/1.1 303"), "{opened}");
    let (_, cookie) = opened.split_once("set-cookie: ").unwrap();
    let (cookie, how) = cookie.split_once(';').unwrap();
    assert!(how.contains("Max-Age=43200"), "{how}");
    for path in ["/dashboard/tenants", "/dashboard/links"] {
        let page = request(port, &format!("GET {path}"), cookie);
        assert!(page.starts_with("HTTP/1.1 200"), "{page}");
    }
    for first in [format!("GET {link}"), format!("POST {link}")] {
        let again = request(port, &first, "");
        assert!(again.starts_with("HTTP/1.1 404"), "{again}");
        assert!(
            again.contains("This link is over, or never was."),
            "{again}"
        );
    }
}

/// `paceline serve | head -1`: whoever read it is gone before the last line.
#[test]
fn serve_goes_on_when_nobody_reads_what_it_says() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    // At the first start the key is made, and at the second it is there.
    for says in [
        "the API key is in this file",
        "nobody reads standard output",
    ] {
        let port = free_port();
        let log = folder.join("log");
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = serve(folder, port, "info");
        command.stdout(writer).stderr(File::create(&log).unwrap());
        let server = Server::of(&mut command);
        poll("ready", || {
            get(port, "/readyz").filter(|answer| answer.contains("\"ready\":true"))
        });
        let said = poll("it is in the log", || {
            let text = fs::read_to_string(&log).ok()?;
            text.contains("nobody reads standard output")
                .then_some(text)
        });
        assert!(said.contains(says), "{said}");
        assert!(
            said.contains(&format!("http://127.0.0.1:{port}/dashboard\"")),
            "{said}"
        );
        assert!(!said.contains("/dashboard/links/"), "{said}");
        assert_eq!(server.stop(), Some(0), "{said}");
    }
}
