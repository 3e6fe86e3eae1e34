//! The host's verifier, for chains of a size that somebody could mean.
//!
//! What a server shows as its certificates is kept with its connection and with its
//! sessions, whether or not it was needed to find a root: without a bound one tenant's
//! receivers could fill the memory of a worker that all tenants share.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, Error, SignatureScheme};

/// Beside the server's own. Public authorities send one or two.
const MOST_INTERMEDIATES: usize = 9;

/// Of all of them together. Common chains have 2 to 6 KB.
const MOST_BYTES: usize = 32 * 1024;

/// Asks the verifier in it about what is short enough.
#[derive(Debug)]
pub(super) struct Bounded(pub(super) Arc<dyn ServerCertVerifier>);

/// Why a chain is too long, if it is.
fn too_long(own: &CertificateDer<'_>, others: &[CertificateDer<'_>]) -> Option<String> {
    if others.len() > MOST_INTERMEDIATES {
        let (sent, most) = (others.len() + 1, MOST_INTERMEDIATES + 1);
        return Some(format!("it sent {sent} certificates, more than {most}"));
    }
    let bytes = own.len() + others.iter().map(|one| one.len()).sum::<usize>();
    let long = || format!("its certificates have {bytes} bytes, more than {MOST_BYTES}");
    (bytes > MOST_BYTES).then(long)
}

impl ServerCertVerifier for Bounded {
    fn verify_server_cert(
        &self,
        own: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        server: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match too_long(own, others) {
            Some(problem) => Err(Error::General(problem)),
            None => (self.0).verify_server_cert(own, others, server, ocsp_response, now),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, own, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, own, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(bytes: usize) -> CertificateDer<'static> {
        CertificateDer::from(vec![0; bytes])
    }

    #[test]
    fn a_chain_is_bounded_in_certificates_and_in_bytes() {
        assert_eq!(too_long(&of(2_000), &vec![of(1); MOST_INTERMEDIATES]), None);
        let many = too_long(&of(2_000), &vec![of(1); MOST_INTERMEDIATES + 1]);
        assert_eq!(many.unwrap(), "it sent 11 certificates, more than 10");
        let large = too_long(&of(2_000), &[of(MOST_BYTES - 2_000), of(1)]);
        let said = "its certificates have 32769 bytes, more than 32768";
        assert_eq!(large.unwrap(), said);
    }

    /// What is too long never comes to the verifier, whatever it would say.
    #[test]
    fn a_long_chain_is_refused_unasked() {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let host = rustls_platform_verifier::Verifier::new(provider).unwrap();
        let bounded = Bounded(Arc::new(host));
        let server = ServerName::try_from("receiver.example").unwrap();
        let others = vec![of(1); 11_000];
        let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(1_795_000_000));
        let answer = bounded.verify_server_cert(&of(9), &others, &server, &[], now);
        assert!(matches!(answer, Err(Error::General(said)) if said.contains("11001")));
    }
}
