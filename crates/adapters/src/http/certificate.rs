//! A client certificate as TLS sees it: whether it is one, whose its key is, and what of
//! it may be shown.

use domain::credentials::{
    CertificateFacts, ClientCertificate, CredentialProblem, MAX_CERTIFICATE_BYTES, MAX_CHAIN,
    MAX_KEY_BYTES,
};
use domain::remark::Remark;
use domain::time::Timestamp;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys};
use sha2::{Digest, Sha256};
use x509_parser::parse_x509_certificate;

/// The longest subject that is shown.
const MAX_SUBJECT_CHARACTERS: usize = 200;

/// What may be shown of a certificate that a destination can use, or what is wrong with
/// it: that it is one, has begun and not ended, and that the key is its own.
pub fn check_certificate(
    certificate: &ClientCertificate,
    now: Timestamp,
) -> Result<CertificateFacts, CredentialProblem> {
    let most = |field, bytes: usize, max_bytes: usize| match bytes > max_bytes {
        true => Err(CredentialProblem::new(
            field,
            format!("must be at most {max_bytes} bytes"),
        )),
        false => Ok(()),
    };
    most(
        "certificate",
        certificate.chain().len(),
        MAX_CERTIFICATE_BYTES,
    )?;
    most("private_key", certificate.key().len(), MAX_KEY_BYTES)?;
    let certified = certified(certificate)?;
    let Some(own) = certified.cert.first() else {
        return Err(no_certificate());
    };
    let (_, parsed) = parse_x509_certificate(own).map_err(|_invalid| no_certificate())?;
    let [not_before, not_after] = [&parsed.validity.not_before, &parsed.validity.not_after]
        .map(|time| Timestamp::from_millis(time.timestamp().saturating_mul(1_000)));
    if now >= not_after {
        return Err(CredentialProblem::new("certificate", "has ended"));
    }
    if now < not_before {
        return Err(CredentialProblem::new("certificate", "has not begun yet"));
    }
    let subject = Remark::new(&parsed.subject.to_string());
    Ok(CertificateFacts {
        subject: subject.chars().take(MAX_SUBJECT_CHARACTERS).collect(),
        sha256: hexadecimal(&Sha256::digest(own)),
        not_after,
    })
}

/// What a handshake shows, and signs with.
pub(super) fn certified(
    certificate: &ClientCertificate,
) -> Result<CertifiedKey, CredentialProblem> {
    let chain: Result<Vec<_>, _> =
        CertificateDer::pem_slice_iter(certificate.chain().as_bytes()).collect();
    let chain = chain.map_err(|_invalid| no_certificate())?;
    if chain.is_empty() {
        return Err(no_certificate());
    }
    if chain.len() > MAX_CHAIN {
        let problem = format!("must be at most {MAX_CHAIN} certificates, the own one first");
        return Err(CredentialProblem::new("certificate", problem));
    }
    let no_key = || {
        let problem = "expected a private key in PEM that is not encrypted: PKCS#8, PKCS#1 or \
            SEC1, of RSA, ECDSA or ed25519";
        CredentialProblem::new("private_key", problem)
    };
    let key = PrivateKeyDer::from_pem_slice(certificate.key().as_bytes());
    let key = key.map_err(|_invalid| no_key())?;
    let provider = rustls::crypto::ring::default_provider();
    CertifiedKey::from_der(chain, key, &provider).map_err(|error| match error {
        Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
            CredentialProblem::new("private_key", "is not the certificate's: the first of it")
        }
        Error::InvalidCertificate(_) => no_certificate(),
        _ => no_key(),
    })
}

fn no_certificate() -> CredentialProblem {
    let problem = "expected X.509 v3 certificates in PEM, the own one first and then its chain";
    CredentialProblem::new("certificate", problem)
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests;
