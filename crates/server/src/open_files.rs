//! How many files and sockets this process may have open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft limit to the hard one. The usual soft limit of 1,024 is
/// less than a worker's places and idle connections; failing to raise it is
/// told and survived.
pub fn raise_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, soft = limit.current, "the limit of open files stays as it is");
    }
}

/// How many of the sockets that are wanted there can be, when half of the files
/// are left to all else.
#[must_use]
pub fn room_for(wanted: usize) -> usize {
    let half = part(2);
    if half < wanted {
        tracing::warn!(
            wanted,
            connections = half,
            "fewer connections than PACELINE_MAX_CONNECTIONS: raise the limit of open files"
        );
    }
    wanted.min(half)
}

/// The same of connections to receivers that nobody uses, which get a quarter: those in use,
/// and who asks for something, need the rest.
#[must_use]
pub fn room_for_idle(wanted: usize) -> usize {
    wanted.min(part(4))
}

/// One of so many equal parts of the files that this process may have open.
fn part(parts: u64) -> usize {
    (getrlimit(Resource::Nofile).current).map_or(usize::MAX, |limit| {
        usize::try_from(limit / parts).unwrap_or(usize::MAX)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_becomes_the_hard_one() {
        raise_limit();
        let limit = getrlimit(Resource::Nofile);
        assert_eq!(limit.current, limit.maximum);
    }

    #[test]
    fn idle_connections_take_a_quarter() {
        raise_limit();
        assert_eq!(room_for_idle(1), 1);
        let quarter = getrlimit(Resource::Nofile).current.map(|limit| limit / 4);
        let quarter = quarter.and_then(|quarter| usize::try_from(quarter).ok());
        assert_eq!(room_for_idle(usize::MAX), quarter.unwrap_or(usize::MAX));
    }
}
