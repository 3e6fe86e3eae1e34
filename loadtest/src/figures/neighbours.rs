//! One tenant does what it should not; a second posts an event every 50 ms, and a
//! third reads its pages: what the two notice of it, on both stores.

mod attack;
mod judge;
mod memory;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use http::StatusCode;
use serde_json::{Value, json};
use server::receiver::{Behaviour, Receiver};
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, sleep, sleep_until};
use uuid::Uuid;

use self::attack::{Attack, Attacker};
use self::memory::Memory;
use super::figure::Figure;
use super::stage::until;
use crate::api::{Client, KEY};
use crate::run::processes::Watched;
use crate::run::settings::Size;
use crate::run::system::{Roles, Settings, Start, System};

/// How often the second posts, and the third reads.
const POST_EVERY: Duration = Duration::from_millis(50);
const READ_EVERY: Duration = Duration::from_millis(200);

/// Connections that the second posts on, in turn: an answer that is late holds up no
/// other post.
const CONNECTIONS: usize = 8;

/// Posts before the measured ones, and how long an attack goes on before they begin.
const WARM_UP: u32 = 40;
const BEFORE: Duration = Duration::from_secs(2);

/// The usual is the middle one of so many without an attack, at least: one alone may
/// have met a moment of the machine.
const ALONE: usize = 3;

/// For the same reason an attack beside which posts are too late is made again, when all
/// have been made, beside so many times as many, and right after as many without one: p99
/// of 200 is the third longest of them, and the machine may be slower by then.
const TIMES_AS_MANY: u32 = 5;

const PATIENCE: Duration = Duration::from_secs(60);

/// As it comes, but for a backlog of all that a tenant can fill in the time.
const SET: Settings = &[
    ("PACELINE_API_KEY", KEY),
    ("PACELINE_MAX_BACKLOG", "2000000"),
];

/// What is measured.
pub(super) struct Wanted<'a> {
    /// Posts of the second, with each attack and without.
    pub(super) posts: u32,
    /// In the names of the attacks; all of them without any.
    pub(super) attacks: &'a [String],
    /// Where; on both stores without any.
    pub(super) sizes: &'a [Size],
}

/// Each attack against the same posts and reads without one, by turns. A store of which
/// nothing can be measured is a missed row, and the other one's figures stay.
pub(super) async fn measure(program: &Path, wanted: &Wanted<'_>) -> anyhow::Result<Vec<Figure>> {
    let sizes = match wanted.sizes {
        [] => &[Size::Embedded, Size::Distributed],
        some => some,
    };
    let mut figures = Vec::new();
    for &size in sizes {
        let attacks = Attack::chosen(wanted.attacks, size);
        if attacks.is_empty() {
            continue;
        }
        let measured = of_size(program, size, (wanted.posts, &attacks), &mut figures).await;
        if let Err(why) = measured {
            figures.push(Figure::not_measured(store(size), &why));
        }
    }
    let texts = wanted.attacks;
    anyhow::ensure!(
        !figures.is_empty(),
        "no attack there has {texts:?} in its name"
    );
    Ok(figures)
}

/// On a Paceline of its own, which is taken away whatever comes of it.
async fn of_size(
    program: &Path,
    size: Size,
    wanted: (u32, &[Attack]),
    figures: &mut Vec<Figure>,
) -> anyhow::Result<()> {
    let roles = Roles {
        apis: 1,
        schedulers: 1,
        workers: 1,
    };
    let mut system = System::start(Start::new(size, program.to_owned(), roles, SET)).await?;
    let measured = on(&mut system, size, wanted).await;
    let removed = system.remove().await;
    figures.extend(measured?);
    removed
}

/// What the size stores in.
const fn store(size: Size) -> &'static str {
    match size {
        Size::Embedded => "SQLite",
        Size::Distributed => "Postgres",
    }
}

async fn on(
    system: &mut System,
    size: Size,
    (posts, attacks): (u32, &[Attack]),
) -> anyhow::Result<Vec<Figure>> {
    let store = store(size);
    let database = system.store.as_ref().filter(|_| size == Size::Distributed);
    let database = database.map(|store| store.database_url.expose().to_owned());
    let scene = Scene::set_up(system.address(), database).await?;
    scene.neighbours(WARM_UP).await?;
    let mut turns = Turns::default();
    for _ in attacks.len()..ALONE {
        turns.alone.push(scene.neighbours(posts).await);
    }
    for &attack in attacks {
        // By turns: machines have moods.
        turns.alone.push(scene.neighbours(posts).await);
        let noticed = scene.beside(attack, posts, &system.watched).await;
        let name = format!("{store}, beside {}", attack.name());
        tell(&name, &noticed)?;
        turns.beside.push(Made {
            name,
            times: vec![noticed],
            usual: None,
        });
        if let Err(ended) = system.check() {
            turns.ended = Some(ended);
            return Ok(turns.figures(size));
        }
    }
    let usual = turns.usual();
    for (&attack, made) in attacks.iter().zip(&mut turns.beside) {
        let first = made.times.first();
        if turns.ended.is_some() || !first.is_some_and(|first| is_late(first, usual)) {
            continue;
        }
        // What the one before left behind is over, and is no part of the usual.
        let _ = scene.neighbours(posts).await;
        let posts = at_least(attack, posts) * TIMES_AS_MANY;
        let alone = scene.neighbours(posts).await;
        made.usual = Some(judge::usual(alone.iter()));
        let noticed = scene.beside(attack, posts, &system.watched).await;
        tell(&made.name, &noticed)?;
        made.times.push(noticed);
        turns.ended = system.check().err();
    }
    Ok(turns.figures(size))
}

/// What came of each turn.
#[derive(Default)]
struct Turns {
    alone: Vec<anyhow::Result<Noticed>>,
    beside: Vec<Made>,
    /// Why there are no more of them.
    ended: Option<anyhow::Error>,
}

/// One attack.
struct Made {
    /// What its rows are called.
    name: String,
    /// As often as it was made.
    times: Vec<anyhow::Result<Beside>>,
    /// What was usual right before it was made again.
    usual: Option<[f64; 3]>,
}

impl Turns {
    fn usual(&self) -> [f64; 3] {
        judge::usual(self.alone.iter().flatten())
    }

    /// A turn of which nothing is known is a missed row: what the others had is known all
    /// the same.
    fn figures(self, size: Size) -> Vec<Figure> {
        let store = store(size);
        let usual = self.usual();
        let mut figures = judge::alone(store, usual);
        let not_alone = self.alone.iter().filter_map(|turn| turn.as_ref().err());
        let name = format!("{store}, alone");
        figures.extend(not_alone.map(|why| Figure::not_measured(&name, why)));
        for made in self.beside {
            let usual = made.usual.unwrap_or(usual);
            let name = judge::named(&made.name, &made.times, usual);
            match judge::together(made.times) {
                Ok((noticed, memory)) => {
                    figures.extend(judge::compared(&name, &noticed, usual));
                    let bounded = judge::bounded(&name, &memory, size);
                    let not_known = |why: anyhow::Error| vec![Figure::not_measured(&name, &why)];
                    figures.extend(bounded.unwrap_or_else(not_known));
                }
                Err(why) => figures.push(Figure::not_measured(&name, &why)),
            }
        }
        figures.extend(self.ended.map(|why| Figure::not_measured(store, &why)));
        figures
    }
}

/// Whether posts were too late beside it. What has failed is not made again.
fn is_late(made: &anyhow::Result<Beside>, usual: [f64; 3]) -> bool {
    (made.as_ref()).is_ok_and(|(noticed, _)| judge::is_late(noticed, usual))
}

/// Says how it was as soon as it is known: all of them take an hour.
fn tell(name: &str, noticed: &anyhow::Result<Beside>) -> std::io::Result<()> {
    let mut said = std::io::stderr().lock();
    let (noticed, _) = match noticed {
        Ok(beside) => beside,
        Err(why) => return writeln!(said, "{name}: {why:#}"),
    };
    for (answer, times) in &noticed.refused {
        writeln!(said, "  a neighbour, {times} times: {answer}")?;
    }
    for (what, p99) in judge::p99s(noticed) {
        writeln!(said, "{name}: {what}, p99 {p99:.1} ms")?;
    }
    Ok(())
}

/// Posts beside an attack: more where it takes longer.
fn at_least(attack: Attack, posts: u32) -> u32 {
    let least = attack.least_length().as_millis() / POST_EVERY.as_millis();
    u32::try_from(least).unwrap_or(u32::MAX).max(posts)
}

/// What was noticed beside an attack, and the most memory of each role meanwhile.
type Beside = (Noticed, BTreeMap<String, f64>);

/// The second and the third tenant, and who makes the first ones.
struct Scene {
    address: String,
    /// Where programs may write events themselves.
    database: Option<String>,
    receiver: Receiver,
    destination: String,
    /// The second's key.
    posts_by: String,
    /// The third's session.
    reads_by: String,
    pages: Vec<String>,
}

/// What the second and the third noticed; milliseconds, sorted.
#[derive(Default)]
struct Noticed {
    /// From when a post was due to its answer.
    posts: Vec<f64>,
    /// From when a post was due to the request at the receiver.
    arrivals: Vec<f64>,
    /// From when a page was due to its end.
    reads: Vec<f64>,
    /// Requests of both that were not answered by a success, by the answer.
    refused: BTreeMap<String, u32>,
}

impl Noticed {
    fn sort(&mut self) {
        for times in [&mut self.posts, &mut self.arrivals, &mut self.reads] {
            times.sort_unstable_by(f64::total_cmp);
        }
    }

    /// Refuses what is not of so many posts: a percentile of few, or of none, holds whatever
    /// it is of.
    fn is_of(&self, posts: u32) -> anyhow::Result<()> {
        let answered = self.posts.len();
        anyhow::ensure!(
            answered == posts as usize,
            "{answered} of {posts} posts were answered"
        );
        Ok(())
    }
}

impl Scene {
    async fn set_up(address: &str, database: Option<String>) -> anyhow::Result<Self> {
        let mut admin = Client::dial(address).await?;
        let receiver = Receiver::start(Behaviour::ACCEPT, 100_000).await?;
        let (_, second) = admin.found("second", "standard").await?;
        let (_, third) = admin.found("third", "standard").await?;
        let mut posting = Client::dial(address).await?.with_key(&second);
        let mut reading = Client::dial(address).await?.with_key(&third);
        let new = json!({"url": receiver.url(0), "unlimited": true}).to_string();
        let mut made = Vec::new();
        for client in [&mut posting, &mut reading] {
            let created = client.ask("POST", "/v1/destinations", &new).await?;
            made.push(created["id"].as_str().unwrap_or_default().to_owned());
        }
        let reads_by = reading.sign_in().await?.to_owned();
        let pages = vec![
            "/dashboard".to_owned(),
            format!("/dashboard/destinations/{}", made[1]),
            "/dashboard/events".to_owned(),
        ];
        Ok(Self {
            address: address.to_owned(),
            database,
            receiver,
            destination: made.swap_remove(0),
            posts_by: second,
            reads_by,
            pages,
        })
    }

    /// A tenant that has done nothing yet.
    async fn attacker(&self, name: &str) -> anyhow::Result<Attacker> {
        // An older one may have been idle for longer than the API keeps it.
        let mut admin = Client::dial(&self.address).await?;
        let (tenant, key) = admin.found(name, "standard").await?;
        Ok(Attacker {
            address: self.address.clone(),
            key,
            tenant,
            database: self.database.clone(),
            cookie: None,
        })
    }

    /// What the two notice beside it. One that did nothing measured nothing, and is an
    /// error.
    async fn beside(
        &self,
        attack: Attack,
        posts: u32,
        watched: &[Watched],
    ) -> anyhow::Result<Beside> {
        let attacker = self.attacker(attack.name()).await?;
        let memory = Memory::watch(watched);
        let underway = attack.begin(&attacker).await?;
        sleep(BEFORE).await;
        attack.is_held(underway.held())?;
        let looking = self.neighbours(at_least(attack, posts));
        let (noticed, fewest) = underway.fewest_held(looking).await;
        let noticed = noticed?;
        attack.is_held(fewest)?;
        let memory = memory.most();
        underway.settled().await?;
        let told @ [asked, taken, refused, failed] = underway.told();
        writeln!(
            std::io::stderr().lock(),
            "{}: {asked} asked, {taken} taken, {refused} refused, {failed} failed",
            attack.name()
        )?;
        attack.was_made(told)?;
        Ok((noticed, memory))
    }

    /// The second posts so many events, and the third reads as long. Each on connections of
    /// this measurement: the API closes those that ask nothing for 75 s, and an attack may
    /// have cost one before.
    async fn neighbours(&self, posts: u32) -> anyhow::Result<Noticed> {
        let mut clients = Vec::with_capacity(CONNECTIONS);
        for _ in 0..CONNECTIONS {
            clients.push(Client::dial(&self.address).await?.with_key(&self.posts_by));
        }
        let reader = Client::dial(&self.address).await?;
        let mut reader = reader.with_cookie(&self.reads_by);
        let began = Instant::now() + POST_EVERY;
        let body = json!({"destination_id": self.destination, "payload": {"order": 1}});
        let body = body.to_string();
        let mut posting = JoinSet::new();
        for (first, client) in (0_u32..).zip(clients) {
            let turns = (first..posts).step_by(CONNECTIONS);
            posting.spawn(post(client, began, turns.collect(), body.clone()));
        }
        let mut noticed = Noticed::default();
        let mut accepted = Vec::new();
        let reads = began + POST_EVERY * posts;
        read(&mut reader, &self.pages, reads, &mut noticed).await?;
        while let Some(done) = posting.join_next().await {
            for Answered { due, took, event } in done?? {
                noticed.posts.push(took.as_secs_f64() * 1_000.0);
                match event {
                    Ok(event) => accepted.push((event, due)),
                    Err(answer) => *noticed.refused.entry(answer).or_default() += 1,
                }
            }
        }
        noticed.is_of(posts)?;
        noticed.arrivals = self.arrivals(accepted).await?;
        noticed.sort();
        Ok(noticed)
    }

    /// When those that were accepted came, milliseconds after they were due.
    async fn arrivals(&self, accepted: Vec<(Uuid, Instant)>) -> anyhow::Result<Vec<f64>> {
        let mut arrived: BTreeMap<Uuid, u64> = BTreeMap::new();
        let all_there = async || {
            for one in &self.receiver.record().arrivals {
                if let Some(event) = one.event {
                    // What comes again has come before.
                    let first = arrived.entry(event).or_insert(one.at_us);
                    *first = one.at_us.min(*first);
                }
            }
            Ok(accepted
                .iter()
                .all(|(event, _)| arrived.contains_key(event)))
        };
        until("all arrive", PATIENCE, all_there).await?;
        let started = self.receiver.started_at();
        let took = |(event, due): &(Uuid, Instant)| {
            let at = started + Duration::from_micros(arrived[event]);
            at.saturating_duration_since(*due).as_secs_f64() * 1_000.0
        };
        Ok(accepted.iter().map(took).collect())
    }
}

/// One post, as it was answered.
struct Answered {
    due: Instant,
    took: Duration,
    /// If it was accepted; else how it was refused.
    event: Result<Uuid, String>,
}

/// Posts one event at each of these turns.
async fn post(
    mut client: Client,
    began: Instant,
    turns: Vec<u32>,
    body: String,
) -> anyhow::Result<Vec<Answered>> {
    let mut answers = Vec::new();
    for turn in turns {
        let due = began + POST_EVERY * turn;
        sleep_until(due).await;
        let (status, answer) = client.answer("POST", "/v1/events", &body).await?;
        let took = due.elapsed();
        let event = match status {
            StatusCode::ACCEPTED => {
                let accepted: Value = serde_json::from_slice(&answer)?;
                Ok(serde_json::from_value(accepted["id"].clone())?)
            }
            _ => Err(refusal(status, &answer)),
        };
        answers.push(Answered { due, took, event });
    }
    Ok(answers)
}

/// Reads page after page until then.
async fn read(
    client: &mut Client,
    pages: &[String],
    end: Instant,
    noticed: &mut Noticed,
) -> anyhow::Result<()> {
    let mut turns = interval(READ_EVERY);
    for page in pages.iter().cycle() {
        let due = turns.tick().await;
        if due >= end {
            break;
        }
        let (status, answer) = client.answer("GET", page, "").await?;
        noticed.reads.push(due.elapsed().as_secs_f64() * 1_000.0);
        if status != StatusCode::OK {
            *noticed.refused.entry(refusal(status, &answer)).or_default() += 1;
        }
    }
    Ok(())
}

/// The same of all that are refused alike.
fn refusal(status: StatusCode, answer: &[u8]) -> String {
    let problem: Value = serde_json::from_slice(answer).unwrap_or_default();
    let word = |field: &str| problem[field].as_str().unwrap_or_default().to_owned();
    format!("{status} {}: {}", word("title"), word("detail"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Some posts, each of which took so long.
    fn noticed(ms: f64) -> Noticed {
        Noticed {
            posts: vec![ms; 3],
            ..Noticed::default()
        }
    }

    fn missed(figures: &[Figure]) -> Vec<&str> {
        let missed = figures.iter().filter(|figure| !figure.passed);
        missed.map(|figure| figure.name.as_str()).collect()
    }

    fn made(name: &str, times: Vec<anyhow::Result<Beside>>) -> Made {
        Made {
            name: name.to_owned(),
            times,
            usual: None,
        }
    }

    #[test]
    fn what_is_made_again_is_compared_with_the_same_minutes() {
        let again = || {
            let memory = || BTreeMap::from([("serve".to_owned(), 60.0)]);
            let twice = vec![Ok((noticed(9.0), memory())), Ok((noticed(9.0), memory()))];
            Turns {
                alone: vec![Ok(noticed(4.0))],
                beside: vec![made("SQLite, beside b", twice)],
                ended: None,
            }
        };
        let late = "SQLite, beside b (2.25 of 3, 2.25 of 3 posts; 4.0 ms alone): a post, p99";
        assert_eq!(missed(&again().figures(Size::Embedded)), [late]);
        let mut slower = again();
        slower.beside[0].usual = Some([5.0; 3]);
        assert!(missed(&slower.figures(Size::Embedded)).is_empty());
        let mut faster = again();
        faster.beside[0].usual = Some([3.0; 3]);
        assert_eq!(missed(&faster.figures(Size::Embedded)).len(), 1);
    }

    #[test]
    fn a_turn_that_failed_is_a_row_and_the_others_have_their_figures() {
        let memory = || BTreeMap::from([("serve".to_owned(), 60.0)]);
        let failed = || anyhow::anyhow!("the API closed the connection");
        let turns = Turns {
            alone: vec![Ok(noticed(4.0)), Err(failed()), Ok(noticed(4.0))],
            beside: vec![
                made("SQLite, beside a", vec![Err(failed())]),
                made("SQLite, beside b", vec![Ok((noticed(4.0), memory()))]),
                made(
                    "SQLite, beside c",
                    vec![Ok((noticed(4.0), BTreeMap::new()))],
                ),
            ],
            ended: Some(anyhow::anyhow!("a serve ended by itself")),
        };
        let figures = turns.figures(Size::Embedded);
        let expected = [
            "SQLite, alone: the API closed the connection",
            "SQLite, beside a: the API closed the connection",
            "SQLite, beside c: the memory of serve is not known",
            "SQLite: a serve ended by itself",
        ];
        assert_eq!(missed(&figures), expected);
        let of_b = figures
            .iter()
            .filter(|one| one.name.starts_with("SQLite, beside b"));
        assert_eq!(of_b.count(), 6);
    }

    #[test]
    fn beside_nothing_that_is_usual_nobody_holds() {
        let memory = BTreeMap::from([("serve".to_owned(), 60.0)]);
        let turns = Turns {
            alone: vec![Err(anyhow::anyhow!("refused"))],
            beside: vec![made("SQLite, beside b", vec![Ok((noticed(4.0), memory))])],
            ended: None,
        };
        let expected = ["SQLite, alone: refused", "SQLite, beside b: a post, p99"];
        assert_eq!(missed(&turns.figures(Size::Embedded)), expected);
    }

    #[test]
    fn what_was_noticed_is_of_every_post() {
        assert!(noticed(1.0).is_of(3).is_ok());
        let error = noticed(1.0).is_of(4).unwrap_err().to_string();
        assert_eq!(error, "3 of 4 posts were answered");
        assert!(Noticed::default().is_of(100).is_err());
    }

    #[test]
    fn whoever_commits_late_is_looked_at_for_longer() {
        assert_eq!(at_least(Attack::LateCommits, 100), 1_200);
        assert_eq!(at_least(Attack::LateCommits, 2_000), 2_000);
        assert_eq!(at_least(Attack::Backlog, 100), 100);
    }
}
