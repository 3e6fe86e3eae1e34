//! TLS at the API's own address: the certificate, its key, and their renewal.
//!
//! Both files are read again every [`LOOKED_AT_EVERY`] and on SIGHUP; what has
//! changed is for the connections that come after it. A pair that does not fit,
//! as while one of the files has been replaced and the other has not, changes
//! nothing: the pair before it stays, and the log says so.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use sha2::{Digest, Sha256};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use zeroize::Zeroizing;

use crate::config::{ConfigError, TlsConfig};

/// How often the files are looked at. A certificate is renewed days before its
/// end; reading two small files costs nothing.
const LOOKED_AT_EVERY: Duration = Duration::from_secs(30);

/// What is spoken inside; HTTP/2 is not.
const ALPN: &[u8] = b"http/1.1";

/// A certificate and its key, as they were last read.
pub struct Tls {
    files: Files,
    read: Fingerprint,
    current: watch::Sender<Arc<ServerConfig>>,
    /// From the beginning on: a SIGHUP that nobody waits for ends the process.
    told: Signal,
}

/// What makes connections speak TLS; cheap to clone.
#[derive(Clone)]
pub struct Acceptor(watch::Receiver<Arc<ServerConfig>>);

#[derive(Clone)]
struct Files {
    certificate: PathBuf,
    key: PathBuf,
}

/// Of both files: the key itself is not kept for comparing.
type Fingerprint = [u8; 32];

impl Tls {
    /// From the files that are configured; `None` where none are.
    pub fn load(config: &TlsConfig) -> anyhow::Result<Option<Self>> {
        let (certificate, key) = match (&config.tls_cert, &config.tls_key) {
            (None, None) => return Ok(None),
            (Some(certificate), Some(key)) => (certificate.clone(), key.clone()),
            (Some(_), None) => {
                let problem = "set it too: the file of the key of --tls-cert";
                return Err(ConfigError::flag("tls-key", problem).into());
            }
            (None, Some(_)) => {
                let problem = "set it too: the file of the certificate of --tls-key";
                return Err(ConfigError::flag("tls-cert", problem).into());
            }
        };
        let files = Files { certificate, key };
        let (read, config) = files.read()?;
        let (current, _) = watch::channel(config);
        Ok(Some(Self {
            files,
            read,
            current,
            told: signal(SignalKind::hangup()).context("listen for SIGHUP")?,
        }))
    }

    /// For a listener: always by what was read last.
    #[must_use]
    pub fn acceptor(&self) -> Acceptor {
        Acceptor(self.current.subscribe())
    }

    /// Reads the files again, now and then, until `shutdown`.
    pub async fn renew(mut self, shutdown: CancellationToken) {
        loop {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                _ = self.told.recv() => {}
                () = tokio::time::sleep(LOOKED_AT_EVERY) => {}
            }
            self.renew_once().await;
        }
    }

    async fn renew_once(&mut self) {
        let files = self.files.clone();
        let read = tokio::task::spawn_blocking(move || files.read()).await;
        match read {
            Ok(Ok((read, config))) if read != self.read => {
                self.read = read;
                self.current.send_replace(config);
                tracing::info!("the certificate was renewed");
            }
            Ok(Ok(_)) => {}
            Ok(Err(error)) => {
                tracing::warn!(%error, "the certificate before is still in use");
            }
            Err(error) => tracing::error!(%error, "reading the certificate broke"),
        }
    }
}

impl Acceptor {
    pub(super) fn now(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.0.borrow()))
    }
}

impl Files {
    fn read(&self) -> Result<(Fingerprint, Arc<ServerConfig>), ConfigError> {
        let refused = |flag: &str, file: &Path, problem: &str| {
            ConfigError::flag(flag, format!("{}: {problem}", file.display()))
        };
        let of_certificate = |problem: &str| refused("tls-cert", &self.certificate, problem);
        let of_key = |problem: &str| refused("tls-key", &self.key, problem);
        let certificate = std::fs::read(&self.certificate)
            .map_err(|error| of_certificate(&format!("cannot be read: {error}")))?;
        let key = std::fs::read(&self.key)
            .map_err(|error| of_key(&format!("cannot be read: {error}")))?;
        let key = Zeroizing::new(key);
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(&certificate)
            .collect::<Result<_, _>>()
            .map_err(|error| of_certificate(&format!("is not PEM: {error}")))?;
        if chain.is_empty() {
            return Err(of_certificate(
                "has no certificate; expected PEM, this server's own certificate first, then \
                 those of its authorities",
            ));
        }
        let private = PrivateKeyDer::from_pem_slice(&key)
            .map_err(|error| of_key(&format!("has no private key in PEM: {error}")))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|builder| (builder.with_no_client_auth()).with_single_cert(chain, private));
        let mut config = config.map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => of_key(&format!(
                "is not the key of the certificate in {}",
                self.certificate.display()
            )),
            error => of_certificate(&format!("cannot be used with its key: {error}")),
        })?;
        config.alpn_protocols = vec![ALPN.to_vec()];
        let mut digest = Sha256::new();
        digest.update(Sha256::digest(&certificate));
        digest.update(Sha256::digest(key.as_slice()));
        Ok((digest.finalize().into(), Arc::new(config)))
    }
}
