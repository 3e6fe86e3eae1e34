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
    let limit = getrlimit(Resource::Nofile).current;
    let half = limit.map_or(usize::MAX, |limit| {
        usize::try_from(limit / 2).unwrap_or(usize::MAX)
    });
    if half < wanted {
        tracing::warn!(
            wanted,
            connections = half,
            "fewer connections than PACELINE_MAX_CONNECTIONS: raise the limit of open files"
        );
    }
    wanted.min(half)
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
}
