//! The scripts, and how they are called.

use std::sync::LazyLock;
use std::time::Duration;

use ::redis::{Script, ScriptInvocation};
use domain::ids::DestinationId;
use engine::ports::NextRun;

use super::keys::ShardKeys;

/// As far ahead as a job can be: microseconds since 1970 plus this stay exact
/// in the doubles that sorted sets and Lua count in.
const FAR: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

pub(super) static TAKE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("take.lua")));
pub(super) static FINISH: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("finish.lua")));
pub(super) static WAKE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("wake.lua")));
pub(super) static LIFE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("life.lua")));
pub(super) static REBUILT: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("rebuilt.lua")));

/// A call of a script that may write all of a shard's keys, without its items.
pub(super) fn call_on<'a>(script: &'a Script, keys: &ShardKeys) -> ScriptInvocation<'a> {
    let mut call = script.key(&keys.jobs);
    call.key(&keys.lease).key(&keys.woken).key(&keys.floor);
    call.arg(&keys.sooner);
    call
}

/// What `FINISH` is told of one job.
pub(super) fn finish_arguments(
    call: &mut ScriptInvocation<'_>,
    destination: DestinationId,
    token: &str,
    next: NextRun,
) {
    let (delay, floor) = match next {
        NextRun::After { delay, floor } => (micros(delay), floor.map_or(-1, micros)),
        NextRun::Remove => (-1, -1),
    };
    call.arg(destination.to_string())
        .arg(token)
        .arg(delay)
        .arg(floor);
}

/// Whole microseconds, the unit of the scripts.
pub(super) fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.min(FAR).as_micros()).unwrap_or(i64::MAX)
}
