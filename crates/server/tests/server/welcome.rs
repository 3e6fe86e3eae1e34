//! What `serve` says to whoever starts it.

use crate::process::{Server, free_port, get, paceline, poll};

#[test]
fn serve_says_where_the_pages_and_the_data_are_and_what_is_next() {
    let folder = tempfile::tempdir().unwrap();
    let port = free_port();
    let said = folder.path().join("said");
    let mut command = paceline(folder.path());
    let command = command
        .args(["--log", "off", "serve", "--listen"])
        .arg(format!("127.0.0.1:{port}"))
        .stdout(std::fs::File::create(&said).unwrap());
    let _server = Server::of(command);
    let lines: Vec<String> = poll("it says the last line", || {
        let text = std::fs::read_to_string(&said).ok()?;
        let whole = text.ends_with('\n') && text.contains("Next, ");
        whole.then(|| text.lines().map(str::to_owned).collect())
    });
    let [key, dashboard, database, next] = &lines[..] else {
        panic!("{lines:#?}");
    };
    assert!(key.starts_with("API key: "), "{key}");
    let origin = format!("http://127.0.0.1:{port}");
    let link = dashboard.strip_prefix(&format!("Dashboard: {origin}"));
    let link = link.unwrap().strip_suffix(" (signs you in, for 12 hours)");
    let page = get(port, link.unwrap()).unwrap();
    assert!(page.starts_with("HTTP/1.1 200"), "{page}");
    let file = folder.path().join("paceline.db");
    assert_eq!(*database, format!("Database: {}", file.display()));
    let (_, command) = next.split_once(": paceline ").unwrap();
    // It works as it stands there.
    let created = paceline(folder.path())
        .args(command.split(' '))
        .output()
        .unwrap();
    let problem = String::from_utf8_lossy(&created.stderr);
    assert!(created.status.success(), "{problem}");
}
