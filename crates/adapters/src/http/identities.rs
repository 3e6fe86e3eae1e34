//! TLS with client certificates: each has its own sessions, so that nothing which was
//! agreed under one is resumed under another, or under none.

use std::sync::{Arc, Mutex, PoisonError};

use domain::ids::SecretId;
use engine::ports::{ClientIdentity, SendError};
use engine::recent::Recent;
use rustls::ClientConfig;
use rustls::client::Resumption;
use rustls::sign::SingleCertAndKey;
use tokio_rustls::TlsConnector;

use super::certificate::certified;
use super::sessions::Sessions;

/// Certificates that are remembered, with the session of one server each; beyond it the
/// older half is forgotten. About 10 KiB each, and at most 150 with the longest chains on
/// both sides.
const MOST: usize = 512;

/// By the secret that a certificate is kept in: of one destination, and never changed.
pub(super) struct Identities {
    /// Without a certificate.
    nobody: Arc<ClientConfig>,
    known: Mutex<Recent<SecretId, TlsConnector>>,
}

impl Identities {
    pub(super) fn new(nobody: ClientConfig) -> Self {
        Self {
            nobody: Arc::new(nobody),
            known: Mutex::new(Recent::new(MOST)),
        }
    }

    /// TLS as this one, or as nobody.
    pub(super) fn of(&self, identity: Option<&ClientIdentity>) -> Result<TlsConnector, SendError> {
        let Some(identity) = identity else {
            return Ok(TlsConnector::from(Arc::clone(&self.nobody)));
        };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(connector) = known.get(&identity.secret) {
            return Ok(connector.clone());
        }
        let certified = certified(&identity.certificate)
            .map_err(|problem| SendError::Refused(format!("client certificate: {problem}")))?;
        let mut config = ClientConfig::clone(&self.nobody);
        config.client_auth_cert_resolver = Arc::new(SingleCertAndKey::from(certified));
        config.resumption = Resumption::store(Arc::new(Sessions::of_one()));
        let connector = TlsConnector::from(Arc::new(config));
        known.insert(identity.secret, connector.clone());
        Ok(connector)
    }
}
