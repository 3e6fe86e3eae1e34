//! One request to a server of the test's own, and its answer.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::Value;

/// Status and body; 0 for what is no answer.
pub(crate) fn ask(
    (port, key): (u16, &str),
    method: &str,
    path: &str,
    body: Option<&Value>,
) -> std::io::Result<(u16, String)> {
    let key = format!("Bearer {key}");
    let headers = [
        ("authorization", key.as_str()),
        ("content-type", "application/json"),
    ];
    let body = body.map(Value::to_string).unwrap_or_default();
    let (status, _, text) = send(port, (method, path), &headers, &body)?;
    Ok((status, text))
}

/// Status, head and body.
pub(crate) fn send(
    port: u16,
    (method, path): (&str, &str),
    headers: &[(&str, &str)],
    body: &str,
) -> std::io::Result<(u16, String, String)> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    let headers = headers.iter();
    let headers: String = headers
        .map(|(name, value)| format!("{name}: {value}\r\n"))
        .collect();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nconnection: close\r\n\
         {headers}content-length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, text) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
    Ok((status.unwrap_or(0), head.to_owned(), text.to_owned()))
}
