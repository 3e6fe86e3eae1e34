//! The schedule on Redis: a sorted set of jobs, and one Lua script for each
//! operation, so that each is atomic and has one clock, the server's `TIME`.
//!
//! What is kept, in each shard (see `keys.rs`), and when it ends:
//!
//! | key | field | begins | ends |
//! |---|---|---|---|
//! | `jobs` | destination → due | wake | finish with `Remove` |
//! | `lease` | destination → token | take | finish |
//! | `woken` | destination → `look` or `clear` | wake under lease | next finish or take |
//! | `floor` | destination → blocked until | finish | finish, wake that clears |
//! | `life` | name, run id, built | [`Schedule::life`] | the server loses it |
//!
//! A destination's *generation* is only ever compared with the one at its last
//! take, so one mark, "woken since the take", stands for it.
//!
//! A wake, and a finish under which one came, that makes a job due sooner than
//! takers know is told on the shard's channel `sooner`, by plain `PUBLISH`:
//! in a cluster any node takes it and passes it on to all, so that one
//! subscription, to whichever node, hears every shard. `SPUBLISH` would spare
//! the other nodes, but needs Redis 7 and a subscription at each shard's node;
//! the channels carry the shard's hash tag, so that they could be such ones.
//! Telling is a hint: what is missed waits for the scheduler's next poll.
//!
//! Tokens are made here, from random bytes of this process and a counter of
//! its calls: unique whatever the server forgets. Losing the server costs a
//! delay, never more: nothing in here is the truth.
//!
//! With several shards, `take` serves each in turn and so keeps "the longest
//! due first" within a shard; no shard waits for another. The number of shards
//! belongs to the prefix: instances that share a prefix should agree on it.
//!
//! It may be changed. A life is one of a number of shards, so the sweep of the
//! first scheduler with another number rebuilds every job from the store. A job
//! that is found where the number does not put it (it was there before, or an
//! instance with the old number woke it) is woken where it belongs and taken
//! away. What lies in shards that nobody asks any more is never run, and nothing
//! but a few bytes for each destination until they are asked again. While
//! instances disagree, a destination may have two jobs, which costs looks, or
//! none until the next sweep, which costs a moment: never a limit.

mod connection;
mod keys;
mod scripts;
mod subscriber;
mod timeouts;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ::redis::{Script, ScriptInvocation};
use async_trait::async_trait;
use domain::ids::DestinationId;
use engine::ports::{
    Finish, NextRun, Schedule, ScheduleError, ScheduleLife, Taken, TakenJob, Wake,
};
use futures_util::future::try_join_all;
use rand::TryRng as _;
use rand::rngs::SysRng;

use self::connection::Connection;
use self::keys::{ShardKeys, shard_of};
use self::scripts::{FINISH, LIFE, REBUILT, TAKE, WAKE, call_on, finish_arguments, micros};
use self::subscriber::Subscriber;

/// The most jobs that one run of a script may touch: a script blocks the
/// server, and Lua's `unpack` has a limit of some thousands.
const MAX_JOBS_PER_SCRIPT: usize = 500;

/// The schedule of all instances that share a Redis and a prefix.
#[derive(Debug)]
pub struct RedisSchedule {
    connection: Connection,
    shards: Vec<ShardKeys>,
    /// Makes what this process names differ from what any other names.
    process: String,
    calls: AtomicU64,
    /// Begun by the first who asks: only schedulers do.
    subscriber: OnceLock<Subscriber>,
}

impl RedisSchedule {
    /// A schedule whose keys begin with `prefix`, in `shards` shards: one,
    /// unless a cluster should spread them.
    ///
    /// Fails where waiting would not help: a URL that cannot be read, no
    /// shards, a refused password. A server that is merely away is warned of
    /// and dialled again by every call.
    pub async fn connect(url: &str, prefix: &str, shards: u16) -> Result<Self, ScheduleError> {
        if shards == 0 {
            return Err(ScheduleError("a schedule needs at least one shard".into()));
        }
        let mut random = [0_u8; 16];
        SysRng
            .try_fill_bytes(&mut random)
            .map_err(|error| ScheduleError(format!("no random bytes: {error}")))?;
        let connection = Connection::new(url)?;
        connection.check().await?;
        Ok(Self {
            connection,
            shards: (0..shards)
                .map(|shard| ShardKeys::new(prefix, shard))
                .collect(),
            process: format!("{:032x}", u128::from_be_bytes(random)),
            calls: AtomicU64::new(0),
            subscriber: OnceLock::new(),
        })
    }

    /// A name that nobody else gives: a token, or a life.
    fn unique(&self) -> String {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        format!("{}-{call}", self.process)
    }

    /// Takes up to `max` jobs of one shard.
    async fn take_from(
        &self,
        shard: usize,
        max: usize,
        lease: Duration,
    ) -> Result<Taken, ScheduleError> {
        let keys = &self.shards[shard];
        let token = self.unique();
        let mut call = TAKE.key(&keys.jobs);
        call.key(&keys.lease).key(&keys.woken);
        call.arg(max).arg(micros(lease)).arg(&token);
        let (next_due, jobs): (i64, Vec<(String, bool, u64)>) =
            self.connection.script(&call).await?;
        let jobs = jobs
            .into_iter()
            .filter_map(|(destination, lapsed, overdue)| {
                let Ok(destination) = destination.parse() else {
                    tracing::warn!(
                        key = keys.jobs,
                        destination,
                        "a job that is no destination's"
                    );
                    return None;
                };
                Some(TakenJob {
                    destination,
                    token: token.clone(),
                    lapsed,
                    overdue: Duration::from_micros(overdue),
                })
            });
        let belongs = |job: &TakenJob| shard_of(job.destination, self.shards.len()) == shard;
        let (jobs, strays): (Vec<_>, Vec<_>) = jobs.partition(belongs);
        self.bring_home(keys, &strays).await?;
        Ok(Taken {
            jobs,
            next_due: u64::try_from(next_due).ok().map(Duration::from_micros),
        })
    }

    /// Wakes jobs in the shards where they belong, and removes them from this
    /// one. In this order: a crash between the two leaves one to be found again.
    async fn bring_home(&self, from: &ShardKeys, strays: &[TakenJob]) -> Result<(), ScheduleError> {
        if strays.is_empty() {
            return Ok(());
        }
        let wakes: Vec<Wake> = strays
            .iter()
            .map(|job| Wake::now(job.destination))
            .collect();
        self.wake(&wakes).await?;
        let mut call = call_on(&FINISH, from);
        for job in strays {
            finish_arguments(&mut call, job.destination, &job.token, NextRun::Remove);
        }
        self.connection.script(&call).await
    }

    /// Runs `script` once for each few hundred `items` of each shard; `arguments`
    /// adds those of one item.
    async fn for_each_shard<T>(
        &self,
        script: &Script,
        items: &[T],
        destination: impl Fn(&T) -> DestinationId,
        arguments: impl Fn(&T, &mut ScriptInvocation<'_>),
    ) -> Result<(), ScheduleError> {
        let mut by_shard: Vec<Vec<&T>> = self.shards.iter().map(|_| Vec::new()).collect();
        for item in items {
            by_shard[shard_of(destination(item), self.shards.len())].push(item);
        }
        let mut calls = Vec::new();
        for (keys, items) in self.shards.iter().zip(&by_shard) {
            for chunk in items.chunks(MAX_JOBS_PER_SCRIPT) {
                let mut call = call_on(script, keys);
                chunk.iter().for_each(|item| arguments(item, &mut call));
                calls.push(call);
            }
        }
        try_join_all(calls.iter().map(|call| self.connection.script::<()>(call))).await?;
        Ok(())
    }

    /// The id of the running server process: a restart or a failover changes
    /// it. Empty where a proxy hides it.
    async fn run_id(&self) -> Result<String, ScheduleError> {
        let mut info = ::redis::cmd("INFO");
        info.arg("server");
        let info: String = self.connection.command(&info).await?;
        let run_id = info.lines().find_map(|line| line.strip_prefix("run_id:"));
        Ok(run_id.unwrap_or_default().trim().to_owned())
    }
}

#[async_trait]
impl Schedule for RedisSchedule {
    async fn take(&self, max: usize, lease: Duration) -> Result<Taken, ScheduleError> {
        let mut taken = Taken::default();
        let mut next_due = vec![None; self.shards.len()];
        let mut rest = max;
        // Begin with another shard each time: where `max` is less than the
        // shards or does not divide, the first ones get more.
        let first = self.calls.fetch_add(1, Ordering::Relaxed) as usize;
        let mut asked: Vec<usize> = (0..self.shards.len())
            .map(|shard| (first + shard) % self.shards.len())
            .collect();
        while !asked.is_empty() {
            let shares: Vec<usize> = shares(rest, asked.len()).collect();
            let calls = shares
                .iter()
                .zip(&asked)
                .map(|(&share, &shard)| self.take_from(shard, share, lease));
            let answers = try_join_all(calls).await?;
            // Once more, to those that gave their share and have more. Who gave
            // less is not asked again, whatever it says: so this ends.
            let mut more = Vec::new();
            for ((answer, share), shard) in answers.into_iter().zip(shares).zip(asked) {
                next_due[shard] = answer.next_due;
                if answer.jobs.len() == share && answer.next_due == Some(Duration::ZERO) {
                    more.push(shard);
                }
                rest = rest.saturating_sub(answer.jobs.len());
                taken.jobs.extend(answer.jobs);
            }
            more.truncate(rest);
            asked = more;
        }
        taken.jobs.sort_by_key(|job| std::cmp::Reverse(job.overdue));
        taken.next_due = next_due.into_iter().flatten().min();
        Ok(taken)
    }

    async fn finish(&self, finishes: &[Finish]) -> Result<(), ScheduleError> {
        let arguments = |finish: &Finish, call: &mut ScriptInvocation<'_>| {
            finish_arguments(call, finish.destination, &finish.token, finish.next);
        };
        self.for_each_shard(&FINISH, finishes, |finish| finish.destination, arguments)
            .await
    }

    async fn wake(&self, wakes: &[Wake]) -> Result<(), ScheduleError> {
        let arguments = |wake: &Wake, call: &mut ScriptInvocation<'_>| {
            call.arg(wake.destination.to_string())
                .arg(micros(wake.after))
                .arg(u8::from(wake.clear_floor));
        };
        self.for_each_shard(&WAKE, wakes, |wake| wake.destination, arguments)
            .await
    }

    async fn life(&self) -> Result<ScheduleLife, ScheduleError> {
        // Another number of shards has its jobs elsewhere, so it is another life.
        let run = format!("{} of {}", self.run_id().await?, self.shards.len());
        let name = self.unique();
        let calls: Vec<_> = self
            .shards
            .iter()
            .map(|keys| {
                let mut call = LIFE.key(&keys.life);
                call.arg(&run).arg(&name);
                call
            })
            .collect();
        let lives: Vec<(String, bool)> =
            try_join_all(calls.iter().map(|call| self.connection.script(call))).await?;
        if lives.iter().all(|(_, built)| *built) {
            return Ok(ScheduleLife::Same);
        }
        // Each shard has a life of its own, for all but one may survive.
        let names: Vec<String> = lives.into_iter().map(|(name, _)| name).collect();
        Ok(ScheduleLife::New(names.join(" ")))
    }

    async fn rebuilt(&self, life: &str) -> Result<(), ScheduleError> {
        let calls: Vec<_> = self
            .shards
            .iter()
            .zip(life.split(' '))
            .map(|(keys, name)| {
                let mut call = REBUILT.key(&keys.life);
                call.arg(name);
                call
            })
            .collect();
        try_join_all(calls.iter().map(|call| self.connection.script::<()>(call))).await?;
        Ok(())
    }

    async fn woken(&self) {
        let subscriber = self.subscriber.get_or_init(|| {
            let channels = self.shards.iter().map(|keys| keys.sooner.clone());
            self.connection.subscriber(channels.collect())
        });
        subscriber.told().await;
    }
}

/// How many of `rest` jobs to ask each of `count` shards for: as equal as can
/// be, and no more than a script may touch.
fn shares(rest: usize, count: usize) -> impl Iterator<Item = usize> {
    (0..count).map(move |position| {
        let share = rest / count + usize::from(position < rest % count);
        share.min(MAX_JOBS_PER_SCRIPT)
    })
}
