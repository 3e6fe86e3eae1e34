//! That takers are told of wakes, by which messages, and again after the
//! connection they are told on was lost.

use adapters::redis::RedisSchedule;
use engine::ports::{NextRun, Schedule, Wake};
use futures_util::StreamExt as _;
use redis::Client;

use super::private_redis::{PrivateRedis, SilentProxy};
use super::{HOUR, PATIENCE, POLL, destination, finish, fresh_prefix, shared_url, wake_and_take};

/// Waits until the schedule tells of something.
async fn told(schedule: &RedisSchedule) {
    tokio::time::timeout(POLL * PATIENCE as u32, schedule.woken())
        .await
        .expect("never told");
}

/// Waits until it tells of nothing for a while.
async fn quiet(schedule: &RedisSchedule) {
    while tokio::time::timeout(POLL * 5, schedule.woken())
        .await
        .is_ok()
    {}
}

/// Wakes other destinations, one after the other, until one is told: before
/// the subscription is there, none is. A subscription itself tells once, so
/// only the second counts.
async fn told_of_wakes_again(schedule: &RedisSchedule) {
    let mut times_told = 0;
    for number in 0..PATIENCE {
        quiet(schedule).await;
        remove_all(schedule).await;
        let wake = Wake::now(destination(number as u128 + 100));
        schedule.wake(&[wake]).await.unwrap();
        if tokio::time::timeout(POLL * 5, schedule.woken())
            .await
            .is_ok()
        {
            times_told += 1;
        }
        if times_told == 2 {
            return;
        }
    }
    panic!("never told again");
}

/// Takes what is due and removes it; returns how many there were.
async fn remove_all(schedule: &RedisSchedule) -> usize {
    let jobs = schedule.take(10, HOUR).await.unwrap().jobs;
    for job in &jobs {
        finish(schedule, job, NextRun::Remove).await;
    }
    jobs.len()
}

async fn subscribers(redis: &PrivateRedis, channel: &str) -> u64 {
    let mut connection = super::connection(&redis.url()).await;
    let (_, subscribers): (String, u64) = redis::cmd("PUBSUB")
        .arg("NUMSUB")
        .arg(channel)
        .query_async(&mut connection)
        .await
        .unwrap();
    subscribers
}

async fn wait_for_subscribers(redis: &PrivateRedis, wanted: u64) {
    for _ in 0..PATIENCE {
        if subscribers(redis, "p:{0}:sooner").await == wanted {
            return;
        }
        tokio::time::sleep(POLL).await;
    }
    panic!("never {wanted} subscribers");
}

#[tokio::test]
async fn a_killed_subscription_comes_back_and_tells() {
    let redis = PrivateRedis::start(&[]).await;
    let schedule = RedisSchedule::connect(&redis.url(), "p", 3).await.unwrap();
    told(&schedule).await;
    for _ in 0..2 {
        remove_all(&schedule).await;
        quiet(&schedule).await;
        redis.command(&["CLIENT", "KILL", "TYPE", "pubsub"]).await;
        // Found by a poll whether told or not; told when the next one is there.
        schedule.wake(&[Wake::now(destination(1))]).await.unwrap();
        assert_eq!(remove_all(&schedule).await, 1);
        told(&schedule).await;
        told_of_wakes_again(&schedule).await;
    }
}

#[tokio::test]
async fn a_restarted_server_tells_again() {
    let mut redis = PrivateRedis::start(&[]).await;
    let schedule = RedisSchedule::connect(&redis.url(), "p", 1).await.unwrap();
    told(&schedule).await;
    redis.kill();
    redis.start_again().await;
    super::life_when_back(&schedule).await;
    told_of_wakes_again(&schedule).await;
}

/// As when a machine vanished: nothing is closed.
#[tokio::test]
async fn a_silent_subscription_is_replaced() {
    let redis = PrivateRedis::start(&[]).await;
    let proxy = SilentProxy::start(redis.address()).await;
    let url = format!("redis://{}/", proxy.address);
    let schedule = RedisSchedule::connect(&url, "p", 1).await.unwrap();
    told(&schedule).await;
    quiet(&schedule).await;
    proxy.fall_silent();
    // By the subscription that takes its place.
    told(&schedule).await;
}

#[tokio::test]
async fn only_who_asks_subscribes_and_nobody_stays() {
    let redis = PrivateRedis::start(&[]).await;
    let schedule = RedisSchedule::connect(&redis.url(), "p", 1).await.unwrap();
    wake_and_take(&schedule).await;
    assert_eq!(subscribers(&redis, "p:{0}:sooner").await, 0);
    told(&schedule).await;
    wait_for_subscribers(&redis, 1).await;
    drop(schedule);
    wait_for_subscribers(&redis, 0).await;
}

/// Arrivals at a busy or a blocked destination cost no messages, and no looks.
#[tokio::test]
async fn what_takers_know_is_not_told() {
    let (url, prefix) = (shared_url(), fresh_prefix());
    let schedule = RedisSchedule::connect(&url, &prefix, 1).await.unwrap();
    let channel = format!("{prefix}:{{0}}:sooner");
    let mut listener = Client::open(url.as_str())
        .unwrap()
        .get_async_pubsub()
        .await
        .unwrap();
    listener.subscribe(&channel).await.unwrap();
    let wake = async |wake: Wake| schedule.wake(&[wake]).await.unwrap();

    // Told, once: the first job, for all that is woken at once.
    let wakes = [2, 1, 3].map(|number| Wake::after(destination(number), HOUR));
    schedule.wake(&wakes).await.unwrap();
    // Not told: the same again, and later.
    schedule.wake(&wakes).await.unwrap();
    wake(Wake::after(destination(4), 2 * HOUR)).await;
    // Told: due now, so not again while it is not taken.
    wake(Wake::now(destination(5))).await;
    wake(Wake::now(destination(6))).await;
    for job in schedule.take(10, HOUR / 2).await.unwrap().jobs {
        // Not told: under lease, and a finish for later than known.
        wake(Wake::now(job.destination)).await;
        let floor = Some(HOUR);
        finish(&schedule, &job, NextRun::After { delay: HOUR, floor }).await;
        // Not told: blocked.
        wake(Wake::now(job.destination)).await;
    }
    let mut publisher = super::connection(&url).await;
    let mut mark = redis::cmd("PUBLISH");
    mark.arg(&channel).arg("mark");
    mark.exec_async(&mut publisher).await.unwrap();

    let mut messages = listener.into_on_message();
    let mut told = 0;
    loop {
        let message: String = messages.next().await.unwrap().get_payload().unwrap();
        if message == "mark" {
            break;
        }
        told += 1;
    }
    assert_eq!(told, 2);
}
