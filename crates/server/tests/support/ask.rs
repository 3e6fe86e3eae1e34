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
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    let body = body.map(Value::to_string).unwrap_or_default();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\
         authorization: Bearer {key}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, text) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
    Ok((status.unwrap_or(0), text.to_owned()))
}
