//! What only the schedule on Redis has to show: that it survives the loss of
//! its server, leaves nothing behind, tells no password, and keeps its
//! promises between processes.
//!
//! Needs `PACELINE_TEST_REDIS_URL`, and `redis-server` for the tests that wipe
//! or kill one.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of a test fail by panicking"
)]

#[path = "redis_schedule/private_redis.rs"]
mod private_redis;
#[path = "redis_schedule/shards.rs"]
mod shards;
#[path = "redis_schedule/takers.rs"]
mod takers;
#[path = "redis_schedule/telling.rs"]
mod telling;

use std::env;
use std::time::Duration;

use adapters::redis::RedisSchedule;
use domain::ids::DestinationId;
use engine::ports::{Finish, NextRun, Schedule, ScheduleError, ScheduleLife, TakenJob, Wake};
use rand::TryRng as _;
use rand::rngs::SysRng;
use uuid::Uuid;

use private_redis::{PrivateRedis, SilentProxy, connection};

const HOUR: Duration = Duration::from_secs(3600);
const POLL: Duration = Duration::from_millis(20);
const PATIENCE: usize = 1_000;

fn destination(number: u128) -> DestinationId {
    DestinationId(Uuid::from_u128(number))
}

fn shared_url() -> String {
    env::var("PACELINE_TEST_REDIS_URL")
        .expect("set PACELINE_TEST_REDIS_URL to a redis that tests may write to")
}

fn fresh_prefix() -> String {
    let mut prefix = [0; 8];
    SysRng.try_fill_bytes(&mut prefix).unwrap();
    format!("test-{:016x}", u64::from_be_bytes(prefix))
}

async fn rebuild(schedule: &RedisSchedule) -> String {
    let ScheduleLife::New(life) = schedule.life().await.unwrap() else {
        panic!("the life is not new");
    };
    schedule.rebuilt(&life).await.unwrap();
    assert_eq!(schedule.life().await.unwrap(), ScheduleLife::Same);
    life
}

/// Wakes a destination and takes its job.
async fn wake_and_take(schedule: &RedisSchedule) -> TakenJob {
    schedule.wake(&[Wake::now(destination(1))]).await.unwrap();
    schedule.take(1, HOUR).await.unwrap().jobs.remove(0)
}

async fn finish(schedule: &RedisSchedule, job: &TakenJob, next: NextRun) {
    let finish = Finish {
        destination: job.destination,
        token: job.token.clone(),
        next,
    };
    schedule.finish(&[finish]).await.unwrap();
}

/// Asks until the server answers.
async fn life_when_back(schedule: &RedisSchedule) -> ScheduleLife {
    for _ in 0..PATIENCE {
        if let Ok(life) = schedule.life().await {
            return life;
        }
        tokio::time::sleep(POLL).await;
    }
    panic!("never reconnected");
}

#[tokio::test]
async fn a_wiped_server_shows_a_new_life_and_works() {
    let redis = PrivateRedis::start(&[]).await;
    let schedule = RedisSchedule::connect(&redis.url(), "p", 3).await.unwrap();
    let first = rebuild(&schedule).await;
    let lost = wake_and_take(&schedule).await;

    redis.command(&["FLUSHALL"]).await;
    redis.command(&["SCRIPT", "FLUSH"]).await;
    let held = wake_and_take(&schedule).await;
    assert!(!held.lapsed);
    finish(&schedule, &lost, NextRun::Remove).await;
    let second = rebuild(&schedule).await;
    assert_ne!(first, second);
    finish(
        &schedule,
        &held,
        NextRun::After {
            delay: Duration::ZERO,
            floor: None,
        },
    )
    .await;
    assert_eq!(schedule.take(1, HOUR).await.unwrap().jobs.len(), 1);
}

#[tokio::test]
async fn a_server_wiped_during_the_rebuild_is_new_again() {
    let redis = PrivateRedis::start(&[]).await;
    let schedule = RedisSchedule::connect(&redis.url(), "p", 1).await.unwrap();
    let ScheduleLife::New(life) = schedule.life().await.unwrap() else {
        panic!("the life is not new");
    };
    redis.command(&["FLUSHALL"]).await;
    schedule.rebuilt(&life).await.unwrap();
    assert_ne!(rebuild(&schedule).await, life);
}

#[tokio::test]
async fn one_lost_shard_is_a_new_life() {
    let redis = PrivateRedis::start(&[]).await;
    let schedule = RedisSchedule::connect(&redis.url(), "p", 3).await.unwrap();
    rebuild(&schedule).await;
    redis.command(&["DEL", "p:{1}:life"]).await;
    rebuild(&schedule).await;
}

#[tokio::test]
async fn a_rebuilt_life_is_the_same_to_every_instance() {
    let redis = PrivateRedis::start(&[]).await;
    let ours = RedisSchedule::connect(&redis.url(), "p", 2).await.unwrap();
    let theirs = RedisSchedule::connect(&redis.url(), "p", 2).await.unwrap();
    assert_eq!(ours.life().await.unwrap(), theirs.life().await.unwrap());
    rebuild(&ours).await;
    assert_eq!(theirs.life().await.unwrap(), ScheduleLife::Same);
}

#[tokio::test]
async fn a_restarted_server_is_reconnected_to_and_new() {
    let mut redis = PrivateRedis::start(&[]).await;
    let schedule = RedisSchedule::connect(&redis.url(), "p", 1).await.unwrap();
    rebuild(&schedule).await;
    wake_and_take(&schedule).await;

    redis.kill();
    schedule.take(1, HOUR).await.unwrap_err();
    redis.start_again().await;
    assert!(matches!(
        life_when_back(&schedule).await,
        ScheduleLife::New(_)
    ));
    // The scripts are gone too, and are loaded again.
    assert!(!wake_and_take(&schedule).await.lapsed);
    rebuild(&schedule).await;
}

#[tokio::test]
async fn a_restart_from_a_snapshot_is_new_although_its_keys_survived() {
    let mut redis = PrivateRedis::start(&[]).await;
    let schedule = RedisSchedule::connect(&redis.url(), "p", 1).await.unwrap();
    let first = rebuild(&schedule).await;
    let held = wake_and_take(&schedule).await;
    redis.command(&["SAVE"]).await;
    redis.kill();
    redis.start_again().await;

    let life = life_when_back(&schedule).await;
    assert_ne!(life, ScheduleLife::New(first));
    assert!(matches!(life, ScheduleLife::New(_)));
    assert_eq!(schedule.life().await.unwrap(), life, "until it is rebuilt");
    finish(&schedule, &held, NextRun::Remove).await;
    assert_eq!(
        schedule.take(1, HOUR).await.unwrap().next_due,
        None,
        "the old lease survived too"
    );
}

#[tokio::test]
async fn a_server_that_is_away_at_the_start_is_found_later() {
    let mut redis = PrivateRedis::start(&[]).await;
    redis.kill();
    let schedule = RedisSchedule::connect(&redis.url(), "p", 1).await.unwrap();
    schedule.take(1, HOUR).await.unwrap_err();
    redis.start_again().await;
    life_when_back(&schedule).await;
    wake_and_take(&schedule).await;
}

#[tokio::test]
async fn a_silent_connection_is_replaced() {
    let redis = PrivateRedis::start(&[]).await;
    let proxy = SilentProxy::start(redis.address()).await;
    let url = format!("redis://{}/", proxy.address);
    let schedule = RedisSchedule::connect(&url, "p", 1).await.unwrap();
    wake_and_take(&schedule).await;
    proxy.fall_silent();
    schedule.take(1, HOUR).await.unwrap_err();
    life_when_back(&schedule).await;
}

#[tokio::test]
async fn no_password_is_ever_told() {
    let redis = PrivateRedis::start(&["--requirepass", "correct"]).await;
    let url = |password: &str| format!("redis://:{password}@{}/", redis.address());
    let schedule = RedisSchedule::connect(&url("correct"), "p", 1)
        .await
        .unwrap();
    schedule.life().await.unwrap();
    let told = format!("{schedule:?}");
    assert!(!told.contains("correct"), "{told}");

    let unreadable = format!("{}x:y", url("secret"));
    for url in [
        url("secret"),
        "secret".into(),
        "redis://:secret@".into(),
        unreadable,
    ] {
        match RedisSchedule::connect(&url, "p", 1).await {
            Err(ScheduleError(told)) => assert!(!told.contains("secret"), "{told}"),
            Ok(schedule) => {
                let told = format!("{schedule:?} {:?}", schedule.life().await);
                assert!(!told.contains("secret"), "{told}");
            }
        }
    }
    let refused = RedisSchedule::connect(&url("secret"), "p", 1).await;
    assert!(
        refused.is_err(),
        "a wrong password is not waited for: {refused:?}"
    );
    let none = RedisSchedule::connect(&format!("redis://{}/", redis.address()), "p", 1).await;
    assert!(none.is_err(), "nor is a missing one: {none:?}");
}

#[tokio::test]
async fn two_prefixes_do_not_see_each_other() {
    let ours = RedisSchedule::connect(&shared_url(), &fresh_prefix(), 1)
        .await
        .unwrap();
    let theirs = RedisSchedule::connect(&shared_url(), &fresh_prefix(), 1)
        .await
        .unwrap();
    let job = wake_and_take(&ours).await;
    assert_eq!(theirs.take(1, HOUR).await.unwrap().next_due, None);
    wake_and_take(&theirs).await;
    finish(&theirs, &job, NextRun::Remove).await;
    finish(&ours, &job, NextRun::Remove).await;
    assert_eq!(ours.take(1, HOUR).await.unwrap().next_due, None);
    assert!(theirs.take(1, HOUR).await.unwrap().next_due.is_some());
    assert!(matches!(theirs.life().await.unwrap(), ScheduleLife::New(_)));
}

#[tokio::test]
async fn removed_jobs_leave_only_the_boot_id() {
    let (url, prefix) = (shared_url(), fresh_prefix());
    let schedule = RedisSchedule::connect(&url, &prefix, 2).await.unwrap();
    rebuild(&schedule).await;
    for number in 0..50 {
        schedule
            .wake(&[Wake::now(destination(number))])
            .await
            .unwrap();
    }
    let floor = Some(HOUR);
    for next in [NextRun::After { delay: HOUR, floor }, NextRun::Remove] {
        let taken = schedule.take(100, HOUR).await.unwrap();
        assert_eq!(taken.jobs.len(), 50);
        for job in &taken.jobs {
            // The first time round some are woken, so that every field is used.
            if next != NextRun::Remove {
                schedule.wake(&[Wake::now(job.destination)]).await.unwrap();
            }
            finish(&schedule, job, next).await;
        }
        let unblocked: Vec<_> = (0..50)
            .map(|number| Wake::unblocked(destination(number)))
            .collect();
        if next != NextRun::Remove {
            schedule.wake(&unblocked).await.unwrap();
        }
    }
    let mut keys: Vec<String> = redis::cmd("KEYS")
        .arg(format!("{prefix}:*"))
        .query_async(&mut connection(&url).await)
        .await
        .unwrap();
    keys.sort();
    assert_eq!(
        keys,
        [
            format!("{prefix}:{{0}}:life"),
            format!("{prefix}:{{1}}:life")
        ]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_job_is_lost_or_shared_by_many_takers() {
    for shards in [1, 3] {
        let (url, prefix) = (shared_url(), fresh_prefix());
        let mut schedules = Vec::new();
        for _ in 0..4 {
            schedules.push(RedisSchedule::connect(&url, &prefix, shards).await.unwrap());
        }
        takers::run(schedules, 30_000).await;
    }
}
