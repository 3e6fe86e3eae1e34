//! A name server on loopback that answers what the test wants, and not twice
//! the same.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

use tokio::net::UdpSocket;
use tokio::task::JoinSet;

const A: u16 = 1;
const CNAME: u16 = 5;
const AAAA: u16 = 28;

/// What a name is.
#[derive(Clone, Default)]
pub(crate) struct Answer {
    alias: Option<String>,
    addresses: Vec<IpAddr>,
}

/// These addresses.
pub(crate) fn is(addresses: &[&str]) -> Answer {
    Answer {
        alias: None,
        addresses: addresses.iter().map(|text| text.parse().unwrap()).collect(),
    }
}

/// Another name, with these addresses.
pub(crate) fn alias(of: &str, addresses: &[&str]) -> Answer {
    Answer {
        alias: Some(of.to_owned()),
        ..is(addresses)
    }
}

#[derive(Default)]
struct Zone {
    /// One answer after another; the last one stays.
    answers: HashMap<String, Vec<Answer>>,
    /// The names and types asked for, in order.
    asked: Vec<(String, u16)>,
}

/// Answers until it is dropped.
pub(crate) struct NameServer {
    address: SocketAddr,
    zone: Arc<Mutex<Zone>>,
    _serving: JoinSet<()>,
}

impl NameServer {
    pub(crate) async fn listen() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let zone = Arc::<Mutex<Zone>>::default();
        let mut serving = JoinSet::new();
        serving.spawn(serve(socket, Arc::clone(&zone)));
        Self {
            address,
            zone,
            _serving: serving,
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// What the name is, the first time and the times after it.
    pub(crate) fn says(&self, name: &str, answers: impl IntoIterator<Item = Answer>) {
        let answers = answers.into_iter().collect();
        self.zone
            .lock()
            .unwrap()
            .answers
            .insert(name.to_owned(), answers);
    }

    /// The names that were asked for, each once.
    pub(crate) fn asked(&self) -> Vec<String> {
        let zone = self.zone.lock().unwrap();
        let mut names: Vec<_> = zone.asked.iter().map(|(name, _)| name.clone()).collect();
        names.sort();
        names.dedup();
        names
    }

    pub(crate) fn questions(&self) -> usize {
        self.zone.lock().unwrap().asked.len()
    }
}

async fn serve(socket: UdpSocket, zone: Arc<Mutex<Zone>>) {
    let mut query = [0; 1500];
    while let Ok((length, from)) = socket.recv_from(&mut query).await {
        let reply = reply(&query[..length], &mut zone.lock().unwrap());
        let _ = socket.send_to(&reply, from).await;
    }
}

impl Zone {
    /// The answer of this time. Both types of one lookup see the same one: a
    /// time is how often this type was asked before.
    fn answer(&mut self, name: &str, kind: u16) -> Option<Answer> {
        let question = (name.to_owned(), kind);
        let before = self.asked.iter().filter(|one| **one == question).count();
        self.asked.push(question);
        let answers = self.answers.get(name)?;
        Some(answers[before.min(answers.len() - 1)].clone())
    }
}

fn reply(query: &[u8], zone: &mut Zone) -> Vec<u8> {
    let mut labels = Vec::new();
    let mut at = 12;
    while query[at] != 0 {
        let end = at + 1 + usize::from(query[at]);
        labels.push(String::from_utf8(query[at + 1..end].to_vec()).unwrap());
        at = end;
    }
    let kind = u16::from_be_bytes([query[at + 1], query[at + 2]]);
    let question = &query[12..at + 5];
    let name = labels.join(".");
    let answer = zone.answer(&name, kind);
    let (records, code) = match &answer {
        Some(answer) => (records(&name, answer, kind), 0),
        None => (Vec::new(), 3), // no such name
    };
    let count = u16::try_from(records.len()).unwrap();
    let mut reply = query[..2].to_vec();
    reply.extend([0x81, 0x80 | code, 0, 1]);
    reply.extend(count.to_be_bytes());
    reply.extend([0; 4]);
    reply.extend(question);
    reply.extend(records.concat());
    reply
}

fn records(name: &str, answer: &Answer, kind: u16) -> Vec<Vec<u8>> {
    let mut records = Vec::new();
    let mut owner = name;
    if let Some(alias) = &answer.alias {
        records.push(record(owner, CNAME, &labels(alias)));
        owner = alias;
    }
    for address in &answer.addresses {
        match address {
            IpAddr::V4(v4) if kind == A => records.push(record(owner, A, &v4.octets())),
            IpAddr::V6(v6) if kind == AAAA => records.push(record(owner, AAAA, &v6.octets())),
            _ => {}
        }
    }
    records
}

/// With a TTL of zero: an answer is for once.
fn record(owner: &str, kind: u16, data: &[u8]) -> Vec<u8> {
    let mut record = labels(owner);
    record.extend(kind.to_be_bytes());
    record.extend([0, 1, 0, 0, 0, 0]);
    record.extend(u16::try_from(data.len()).unwrap().to_be_bytes());
    record.extend(data);
    record
}

fn labels(name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for label in name.split('.') {
        bytes.push(u8::try_from(label.len()).unwrap());
        bytes.extend(label.bytes());
    }
    bytes.push(0);
    bytes
}
