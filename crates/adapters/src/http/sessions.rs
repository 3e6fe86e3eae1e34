//! TLS sessions, so that a connection to a receiver which was known lately costs
//! no certificates and no signatures anew.
//!
//! Most destinations send seldom, and their connections do not stay open for so
//! long. rustls's own store remembers 32 servers and eight tickets of each; this
//! one remembers many servers, and of each the newest session of whichever version of
//! TLS, which is all that one connection at a time needs.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustls::NamedGroup;
use rustls::client::{ClientSessionStore, Tls12ClientSessionValue, Tls13ClientSessionValue};
use rustls::pki_types::ServerName;

/// Servers that are remembered; the first that came goes first. About 5 KiB each, most of
/// it the server's certificates. At most 100 KiB, with the longest chain that
/// `verifier.rs` lets pass (32 KiB) and the largest ticket that there is (64): all
/// together are bounded by 100 MiB whatever receivers do. rustls tells nobody how large
/// one is, so it is the largest that bounds their number.
const MOST: usize = 1_024;

/// What is known of each server.
pub(super) struct Sessions {
    known: Mutex<Known>,
    most: usize,
}

#[derive(Default)]
struct Known {
    servers: HashMap<ServerName<'static>, Session>,
    /// As they came.
    order: VecDeque<ServerName<'static>>,
}

#[derive(Default)]
struct Session {
    group: Option<NamedGroup>,
    newest: Option<Newest>,
}

/// One version's: a server that speaks both does not cost twice as much.
enum Newest {
    Tls12(Tls12ClientSessionValue),
    /// Used once.
    Tls13(Tls13ClientSessionValue),
}

impl Default for Sessions {
    fn default() -> Self {
        Self {
            known: Mutex::default(),
            most: MOST,
        }
    }
}

impl Sessions {
    /// Of the one server that a client certificate is shown to.
    pub(super) fn of_one() -> Self {
        Self {
            most: 1,
            ..Self::default()
        }
    }

    fn learn(&self, server: ServerName<'static>, what: impl FnOnce(&mut Session)) {
        let mut known = self.known();
        if let Some(session) = known.servers.get_mut(&server) {
            return what(session);
        }
        if known.order.len() >= self.most
            && let Some(first) = known.order.pop_front()
        {
            known.servers.remove(&first);
        }
        known.order.push_back(server.clone());
        what(known.servers.entry(server).or_default());
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClientSessionStore for Sessions {
    fn set_kx_hint(&self, server: ServerName<'static>, group: NamedGroup) {
        self.learn(server, |session| session.group = Some(group));
    }

    fn kx_hint(&self, server: &ServerName<'_>) -> Option<NamedGroup> {
        self.known().servers.get(&server.to_owned())?.group
    }

    fn set_tls12_session(&self, server: ServerName<'static>, value: Tls12ClientSessionValue) {
        self.learn(server, |session| {
            session.newest = Some(Newest::Tls12(value))
        });
    }

    fn tls12_session(&self, server: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        let known = self.known();
        let session = known.servers.get(&server.to_owned())?;
        match &session.newest {
            Some(Newest::Tls12(value)) => Some(value.clone()),
            Some(Newest::Tls13(_)) | None => None,
        }
    }

    fn remove_tls12_session(&self, server: &ServerName<'static>) {
        if let Some(session) = self.known().servers.get_mut(server)
            && matches!(session.newest, Some(Newest::Tls12(_)))
        {
            session.newest = None;
        }
    }

    fn insert_tls13_ticket(&self, server: ServerName<'static>, value: Tls13ClientSessionValue) {
        self.learn(server, |session| {
            session.newest = Some(Newest::Tls13(value))
        });
    }

    fn take_tls13_ticket(&self, server: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        let mut known = self.known();
        let session = known.servers.get_mut(server)?;
        match session.newest.take() {
            Some(Newest::Tls13(value)) => Some(value),
            another => {
                session.newest = another;
                None
            }
        }
    }
}

/// Without what is in them: they are secrets.
impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sessions").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(number: usize) -> ServerName<'static> {
        ServerName::try_from(format!("r{number}.example")).unwrap()
    }

    #[test]
    fn so_many_are_remembered_and_the_first_goes_first() {
        let sessions = Sessions::default();
        for number in 0..=MOST {
            sessions.set_kx_hint(server(number), NamedGroup::X25519);
            sessions.set_kx_hint(server(number), NamedGroup::secp256r1);
        }
        assert_eq!(sessions.kx_hint(&server(0)), None);
        for number in 1..=MOST {
            let hint = sessions.kx_hint(&server(number));
            assert_eq!(hint, Some(NamedGroup::secp256r1), "{number}");
        }
        let known = sessions.known();
        assert_eq!((known.servers.len(), known.order.len()), (MOST, MOST));
    }
}
