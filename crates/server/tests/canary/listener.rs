//! A listener that keeps every request whole: the receiver, or the collector.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// One request.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) path: String,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Request {
    /// The value of a header that is there once.
    pub(crate) fn header(&self, name: &str) -> Option<String> {
        let lines = self
            .head
            .lines()
            .skip(1)
            .filter_map(|line| line.split_once(':'));
        let mut values = lines.filter(|(own, _)| own.eq_ignore_ascii_case(name));
        let value = values.next().map(|(_, value)| value.trim().to_owned());
        assert!(values.next().is_none(), "{name} is there twice");
        value
    }
}

/// The listener; its threads end with the test's process.
pub(crate) struct Listener {
    pub(crate) address: SocketAddr,
    kept: Arc<Mutex<Vec<Request>>>,
}

impl Listener {
    /// One that answers each path as told: a status and a body.
    pub(crate) fn start(answer: fn(&str) -> (u16, &'static str)) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let kept = Arc::new(Mutex::new(Vec::new()));
        let keep = Arc::clone(&kept);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let keep = Arc::clone(&keep);
                thread::spawn(move || serve(stream, &keep, answer));
            }
        });
        Self { address, kept }
    }

    /// Every request so far.
    pub(crate) fn requests(&self) -> Vec<Request> {
        self.kept.lock().unwrap().clone()
    }
}

/// Requests of one connection, until it closes.
fn serve(stream: TcpStream, keep: &Mutex<Vec<Request>>, answer: fn(&str) -> (u16, &'static str)) {
    let mut reader = BufReader::new(stream);
    while let Some(request) = read(&mut reader) {
        let (status, body) = answer(&request.path);
        keep.lock().unwrap().push(request);
        let length = body.len();
        let text = format!("HTTP/1.1 {status} X\r\ncontent-length: {length}\r\n\r\n{body}");
        if reader.get_mut().write_all(text.as_bytes()).is_err() {
            return;
        }
    }
}

fn read(reader: &mut BufReader<TcpStream>) -> Option<Request> {
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
        if line.trim().is_empty() {
            break;
        }
        head.push_str(&line);
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let path = head.split(' ').nth(1)?.to_owned();
    Some(Request { path, head, body })
}
