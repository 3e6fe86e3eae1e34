//! A tour of the API by the generated client, with a receiver that verifies signatures.
//!
//! ```sh
//! cargo run --example tour -- URL
//! ```
//!
//! URL is a running Paceline's that may deliver to this machine. The key is in
//! `PACELINE_API_KEY`; if it is a platform's, the tenant that it acts for is in
//! `PACELINE_TENANT`.

use std::error::Error;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::Duration;
use std::{env, thread};

use http::{HeaderMap, HeaderName, HeaderValue};
use paceline_client::api::{
    ChangeDestination, CreateDestination, CreatedDestination, Limits, LimitsPatch, PostEvent,
    PostEventOptions, ShowComplianceOptions,
};
use paceline_client::{Client, Webhook};

type Failure = Box<dyn Error>;
type Arrival = (HeaderMap, Vec<u8>);

const PATIENCE: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(100);
const POLLS: usize = 100;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let url = env::args().nth(1).ok_or("usage: tour URL")?;
    let mut client = Client::new(&url, &env::var("PACELINE_API_KEY")?)?;
    if let Ok(tenant) = env::var("PACELINE_TENANT") {
        client = client.for_tenant(&tenant)?;
    }
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let hooks = format!("http://{}/hooks", listener.local_addr()?);
    let (arrive, arrived) = mpsc::channel();
    // Hands on what arrives; verifying needs the secret, which comes later.
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            if let Ok(arrival) = receive(&stream) {
                let _ = arrive.send(arrival);
            }
        }
    });

    let mut wanted = CreateDestination::new(hooks);
    let mut limits = Limits::default();
    limits.per_second = Some(5);
    wanted.name = Some("rust".to_owned());
    wanted.limits = Some(limits);
    let created = client.create_destination(&wanted).await?;
    let id = &created.destination.id;
    let per_second = created.destination.limits.per_second;
    println!("created {id} with {per_second:?} a second");

    let mut event = PostEvent::default();
    event.destination_id = Some(id.clone());
    event.r#type = Some("order.paid".to_owned());
    event.payload = Some(serde_json::json!({"order": 42, "total": "19.90"}));
    let accepted = client
        .post_event(&event, &PostEventOptions::default())
        .await?;
    println!("sent {}", accepted.id);

    let arrival = arrived.recv_timeout(PATIENCE)?;
    verify(&created, arrival, &event)?;

    let mut limits = LimitsPatch::default();
    limits.per_second = 50.into();
    let mut change = ChangeDestination::default();
    change.limits = limits.into();
    let changed = client.change_destination(id, &change).await?;
    let per_second = changed.limits.per_second.ok_or("no limit")?;
    println!("changed to {per_second} a second");
    refused(&client).await?;
    audit(&client, id).await
}

/// One request, answered with a 204.
fn receive(mut stream: &TcpStream) -> Result<Arrival, Failure> {
    let mut reader = BufReader::new(stream);
    reader.read_line(&mut String::new())?;
    let mut headers = HeaderMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(": ") else {
            break;
        };
        headers.insert(name.parse::<HeaderName>()?, HeaderValue::from_str(value)?);
    }
    let length = headers.get("content-length").ok_or("no length")?;
    let mut body = vec![0; length.to_str()?.parse()?];
    reader.read_exact(&mut body)?;
    stream.write_all(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n")?;
    Ok((headers, body))
}

fn verify(
    created: &CreatedDestination,
    (headers, mut body): Arrival,
    event: &PostEvent,
) -> Result<(), Failure> {
    let secret = created.secret.secret.as_deref().ok_or("no secret")?;
    let webhook = Webhook::new(secret)?;
    webhook.verify(&headers, &body)?;
    let payload: serde_json::Value = serde_json::from_slice(&body)?;
    assert_eq!(Some(&payload), event.payload.as_ref());
    body.push(b' ');
    let why = webhook.verify(&headers, &body).expect_err("it is forged");
    println!("verified {payload} and refused another: {why}");
    Ok(())
}

/// A request that cannot be done names the field at fault.
async fn refused(client: &Client) -> Result<(), Failure> {
    let wrong = CreateDestination::new("not a URL");
    let refused = client.create_destination(&wrong).await.err();
    let field = refused
        .as_ref()
        .and_then(|error| error.problem()?.field.as_deref());
    assert_eq!(field, Some("url"), "{refused:?}");
    Ok(())
}

async fn audit(client: &Client, id: &str) -> Result<(), Failure> {
    let mut options = ShowComplianceOptions::default();
    options.destination_id = Some(id.to_owned());
    // What has just started is judged half a second later.
    for _ in 0..POLLS {
        let report = client.show_compliance(&options).await?;
        let [audited] = &report.destinations[..] else {
            return Err("it is not audited".into());
        };
        if audited.starts > 0 {
            assert!(report.compliant && audited.starts == 1, "{report:?}");
            println!("audited: {} start", audited.starts);
            return Ok(());
        }
        tokio::time::sleep(POLL).await;
    }
    Err("its start is not audited in time".into())
}
