use zeroize::Zeroizing;

use super::*;

/// Of nobody: no host trusts them, and their keys are worth nothing.
const CLIENT: &str = include_str!("../../../tests/http_sender/pem/client.pem");
const CLIENT_KEY: &str = include_str!("../../../tests/http_sender/pem/client.key");
const CLIENT_SEC1: &str = include_str!("../../../tests/http_sender/pem/client_sec1.key");
const CLIENT_ENCRYPTED: &str = include_str!("../../../tests/http_sender/pem/client_encrypted.key");
const OTHER: &str = include_str!("../../../tests/http_sender/pem/other.pem");
const OTHER_KEY: &str = include_str!("../../../tests/http_sender/pem/other.key");
/// Of 2020, and of 2100 on.
const PAST: &str = include_str!("../../../tests/http_sender/pem/past.pem");
const FUTURE: &str = include_str!("../../../tests/http_sender/pem/future.pem");

/// November 2026.
const NOW: Timestamp = Timestamp::from_millis(1_795_000_000_000);

fn check(chain: &str, key: &str) -> Result<CertificateFacts, CredentialProblem> {
    let key = Zeroizing::new(key.to_owned());
    check_certificate(&ClientCertificate::new(chain.to_owned(), key), NOW)
}

#[test]
fn it_says_whose_it_is_and_until_when() {
    let facts = check(CLIENT, CLIENT_KEY).unwrap();
    assert_eq!(facts.subject, "O=Example, CN=paceline client");
    // 1 January 2120, and what `openssl x509 -fingerprint -sha256` says.
    assert_eq!(facts.not_after, Timestamp::from_millis(4_733_510_400_000));
    assert_eq!(
        facts.sha256,
        "dd329e0c4cd44492e285cc41a0b4bb59a4376d8669efc539017888135f94b3d4"
    );
    let chain = format!("{CLIENT}\n{OTHER}");
    assert_eq!(
        check(&chain, CLIENT_SEC1),
        Ok(facts.clone()),
        "with a chain"
    );
    let both = format!("{CLIENT_KEY}\n{CLIENT}");
    assert_eq!(check(&both, &both), Ok(facts), "of one file");
}

#[test]
fn what_no_handshake_could_use_is_refused_by_its_field() {
    let refused = |chain: &str, key: &str| {
        let problem = check(chain, key).unwrap_err();
        let said = problem.to_string();
        assert!(!said.contains("BEGIN"), "{said}");
        (problem.field, problem.problem)
    };
    let certificate = |chain: &str, says: &str| {
        let (field, problem) = refused(chain, CLIENT_KEY);
        assert!(
            field == "certificate" && problem.contains(says),
            "{problem}"
        );
    };
    certificate("", "expected X.509 v3 certificates in PEM");
    certificate("canary", "expected X.509 v3 certificates in PEM");
    certificate(CLIENT_KEY, "expected X.509 v3 certificates in PEM");
    let cut = CLIENT.replacen("MII", "MIH", 1);
    certificate(&cut, "expected X.509 v3 certificates in PEM");
    certificate(PAST, "has ended");
    certificate(FUTURE, "has not begun");
    certificate(&CLIENT.repeat(11), "at most 10 certificates");
    let long = format!("{CLIENT}{}", "\n".repeat(MAX_CERTIFICATE_BYTES));
    certificate(&long, "at most 16384 bytes");
    let key = |key: &str, says: &str| {
        let (field, problem) = refused(CLIENT, key);
        assert!(
            field == "private_key" && problem.contains(says),
            "{problem}"
        );
    };
    key("", "expected a private key in PEM");
    key(CLIENT, "expected a private key in PEM");
    key(CLIENT_ENCRYPTED, "not encrypted");
    key(OTHER_KEY, "is not the certificate's");
    let long = format!("{CLIENT_KEY}{}", "\n".repeat(MAX_KEY_BYTES));
    key(&long, "at most 8192 bytes");
}
