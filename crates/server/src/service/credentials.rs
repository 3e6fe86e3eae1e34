//! What a destination has one of: the headers that it adds, the client certificate that
//! its connections show, and what its tokens are asked for with. Checked, sealed and
//! handed to the store; none of it is shown again.

use adapters::http::check_certificate;
use domain::credentials::{
    CertificateFacts, ClientAuth, ClientCertificate, CredentialProblem, OAuthClient, OAuthFacts,
};
use domain::header::CustomHeaders;
use domain::ids::{DestinationId, SecretId};
use engine::ports::{Place, SealedKind, SingleChange};
use engine::sealing::{self, Opened, seal_certificate, seal_client, seal_headers};

use super::{Service, ServiceError, rules};
use crate::hidden::Hidden;

/// A header, of those that its owner may set, which a token takes the place of.
const AUTHORIZATION: &str = "authorization";

/// A client certificate that somebody wants to be shown.
#[derive(Debug, Clone, PartialEq)]
pub struct CertificateDraft {
    /// And its chain behind it, in PEM.
    pub certificate: Hidden,
    /// In PEM.
    pub private_key: Hidden,
}

/// A client as which somebody wants tokens to be asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct ClientDraft {
    pub token_url: String,
    pub client_id: String,
    pub client_secret: Hidden,
    pub scopes: Vec<String>,
    pub audience: Option<String>,
    pub client_auth: ClientAuth,
}

impl ClientDraft {
    /// Of its two halves.
    #[must_use]
    pub fn of(facts: OAuthFacts, client_secret: Hidden) -> Self {
        Self {
            token_url: facts.token_url,
            client_id: facts.client_id,
            client_secret,
            scopes: facts.scopes,
            audience: facts.audience,
            client_auth: facts.client_auth,
        }
    }
}

/// What is wanted; of one that is there, `None` leaves it as it is.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Wanted {
    pub(super) headers: Option<Vec<(String, Hidden)>>,
    pub(super) certificate: Option<Option<CertificateDraft>>,
    pub(super) client: Option<Option<ClientDraft>>,
}

/// The same, checked.
struct Checked {
    headers: Option<CustomHeaders>,
    certificate: Option<Option<(ClientCertificate, CertificateFacts)>>,
    client: Option<Option<OAuthClient>>,
}

impl Service {
    /// What a new destination at this URL has.
    pub(super) fn new_singles(
        &self,
        destination: DestinationId,
        (url, wanted): (&str, Wanted),
    ) -> Result<Vec<SingleChange>, ServiceError> {
        let checked = self.checked(url, wanted)?;
        checked.refuse_two_authorizations(&Present::default())?;
        Ok(self.sealed(destination, &checked))
    }

    /// What a change of one makes of what it has: it may have a new URL.
    pub(super) async fn changed_singles(
        &self,
        destination: DestinationId,
        (url, wanted): (Option<&str>, Wanted),
    ) -> Result<Vec<SingleChange>, ServiceError> {
        let is_plain = url.is_some_and(|url| url.starts_with("http:"));
        if wanted == Wanted::default() && !is_plain {
            return Ok(Vec::new());
        }
        let current = self.catalog.destination(self.tenant, destination).await?;
        let url = url.unwrap_or(&current.url);
        let checked = self.checked_beside(destination, (url, wanted)).await?;
        Ok(self.sealed(destination, &checked))
    }

    /// The same of one that may have it already: that is left out, since a change takes
    /// back what is admitted, as all workers have to read its target again.
    pub(super) async fn singles_that_differ(
        &self,
        destination: DestinationId,
        (url, wanted): (&str, Wanted),
    ) -> Result<Vec<SingleChange>, ServiceError> {
        let mut checked = self.checked_beside(destination, (url, wanted)).await?;
        let mut sealed = (self.managers)
            .sealed_secrets(self.tenant, destination)
            .await?;
        // Of what is not named, nothing need open.
        sealed.retain(|one| match one.place.kind {
            SealedKind::Headers => checked.headers.is_some(),
            SealedKind::ClientCertificate => checked.certificate.is_some(),
            SealedKind::OAuth2 => checked.client.is_some(),
            SealedKind::Signs(_) | SealedKind::Notice => false,
        });
        // What does not open is made anew.
        if let Ok(has) = sealing::open(self.signing.vault.as_ref(), &sealed) {
            checked.leave_out(&has);
        }
        Ok(self.sealed(destination, &checked))
    }

    /// Checked by itself, and beside what the destination has and goes on to have.
    async fn checked_beside(
        &self,
        destination: DestinationId,
        (url, wanted): (&str, Wanted),
    ) -> Result<Checked, ServiceError> {
        let shown = self.signing.secrets.shown(&[destination]).await?;
        let shown = shown.into_iter().next().unwrap_or_default();
        if wanted.certificate.is_none() && shown.certificate.is_some() {
            shows_over_https("url", url)?;
        }
        let checked = self.checked(url, wanted)?;
        checked.refuse_two_authorizations(&Present {
            header: shown.header_names.iter().any(|name| name == AUTHORIZATION),
            client: shown.oauth2.is_some(),
        })?;
        Ok(checked)
    }

    fn checked(&self, url: &str, wanted: Wanted) -> Result<Checked, ServiceError> {
        let certificate = wanted.certificate.map(|draft| {
            let draft = draft.map(|draft| self.checked_certificate(url, draft));
            draft.transpose()
        });
        let client = wanted.client.map(|draft| {
            let draft = draft.map(|draft| self.checked_client(draft));
            draft.transpose()
        });
        Ok(Checked {
            headers: wanted.headers.map(checked_headers).transpose()?,
            certificate: certificate.transpose()?,
            client: client.transpose()?,
        })
    }

    fn checked_certificate(
        &self,
        url: &str,
        draft: CertificateDraft,
    ) -> Result<(ClientCertificate, CertificateFacts), ServiceError> {
        shows_over_https("client_certificate", url)?;
        let chain = draft.certificate.expose().to_owned();
        let certificate = ClientCertificate::new(chain, draft.private_key.into_inner());
        let facts = check_certificate(&certificate, self.mint.now());
        let facts = facts.map_err(|problem| invalid("client_certificate", problem))?;
        Ok((certificate, facts))
    }

    fn checked_client(&self, draft: ClientDraft) -> Result<OAuthClient, ServiceError> {
        rules::url_of("oauth2.token_url", &draft.token_url, &self.policy)?;
        let facts = OAuthFacts {
            token_url: draft.token_url,
            client_id: draft.client_id,
            scopes: draft.scopes,
            audience: draft.audience,
            client_auth: draft.client_auth,
        };
        let client = OAuthClient::new(facts, draft.client_secret.into_inner());
        client.map_err(|problem| invalid("oauth2", problem))
    }

    fn sealed(&self, destination: DestinationId, checked: &Checked) -> Vec<SingleChange> {
        let vault = self.signing.vault.as_ref();
        let place = || self.place(destination);
        let headers = checked.headers.as_ref().map(|headers| {
            let none = headers.is_empty();
            let set = || seal_headers(vault, place(), &self.mint.bytes(), headers);
            one(SealedKind::Headers, (!none).then(set))
        });
        let certificate = checked.certificate.as_ref().map(|wanted| {
            let set = |(certificate, facts): &(_, _)| {
                seal_certificate(vault, place(), &self.mint.bytes(), (certificate, facts))
            };
            one(SealedKind::ClientCertificate, wanted.as_ref().map(set))
        });
        let client = checked.client.as_ref().map(|wanted| {
            let set = |client| seal_client(vault, place(), &self.mint.bytes(), client);
            one(SealedKind::OAuth2, wanted.as_ref().map(set))
        });
        [headers, certificate, client]
            .into_iter()
            .flatten()
            .collect()
    }

    pub(super) fn place(&self, destination: DestinationId) -> Place {
        Place {
            tenant: self.tenant,
            destination,
            secret: SecretId(self.mint.uuid()),
            kind: SealedKind::Headers, // sealing says what it really is
        }
    }
}

/// What a destination has already.
#[derive(Default)]
struct Present {
    /// A header `authorization`.
    header: bool,
    client: bool,
}

impl Checked {
    /// What a destination has already.
    fn leave_out(&mut self, has: &Opened) {
        let identity = has.identity.as_ref().map(|one| one.certificate.as_ref());
        let client = has.client.as_ref().map(|one| one.client.as_ref());
        self.headers.take_if(|one| *one == has.headers);
        (self.certificate)
            .take_if(|one| one.as_ref().map(|(certificate, _)| certificate) == identity);
        self.client.take_if(|one| one.as_ref() == client);
    }

    /// A token is sent in the header `authorization`: nobody would know which of two
    /// stands there. (Of two changes at the same time both may pass; the token stands
    /// then.)
    fn refuse_two_authorizations(&self, present: &Present) -> Result<(), ServiceError> {
        let named = |headers: &CustomHeaders| headers.iter().any(|(name, _)| name == AUTHORIZATION);
        let header = self.headers.as_ref().map_or(present.header, named);
        let client = self.client.as_ref().map_or(present.client, Option::is_some);
        let field = match self.headers {
            _ if !(header && client) => return Ok(()),
            Some(_) => "headers",
            None => "oauth2",
        };
        let problem = "oauth2 sends its token in the header authorization: set one of the two";
        Err(ServiceError::invalid(field, problem))
    }
}

fn one(kind: SealedKind, set: Option<engine::ports::NewSecret>) -> SingleChange {
    set.map_or(SingleChange::Clear(kind), SingleChange::Set)
}

fn shows_over_https(field: &str, url: &str) -> Result<(), ServiceError> {
    match url.starts_with("http:") {
        true => Err(ServiceError::invalid(
            field,
            "a client certificate can only be shown over https",
        )),
        false => Ok(()),
    }
}

fn invalid(of: &str, problem: CredentialProblem) -> ServiceError {
    ServiceError::invalid(format!("{of}.{}", problem.field), problem.problem)
}

fn checked_headers(headers: Vec<(String, Hidden)>) -> Result<CustomHeaders, ServiceError> {
    let headers = headers.into_iter();
    let headers = headers.map(|(name, value)| (name, value.into_inner()));
    CustomHeaders::new(headers)
        .map_err(|problem| ServiceError::invalid("headers", problem.to_string()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use domain::time::Timestamp;
    use engine::ports::ClientIdentity;
    use engine::sealing::TokenClient;
    use uuid::Uuid;
    use zeroize::Zeroizing;

    use super::*;

    const SECRET: SecretId = SecretId(Uuid::nil());

    fn certificate(key: &str) -> ClientCertificate {
        ClientCertificate::new("chain".to_owned(), Zeroizing::new(key.to_owned()))
    }

    fn client(secret: &str) -> OAuthClient {
        let facts = OAuthFacts {
            token_url: "https://login.example/".to_owned(),
            client_id: "paceline".to_owned(),
            scopes: Vec::new(),
            audience: None,
            client_auth: ClientAuth::Basic,
        };
        OAuthClient::new(facts, Zeroizing::new(secret.to_owned())).unwrap()
    }

    /// What is left to be changed: headers, certificate, client.
    fn left(wanted: (Option<&str>, Option<&str>), has: &Opened) -> [bool; 3] {
        let facts = CertificateFacts {
            subject: String::new(),
            sha256: String::new(),
            not_after: Timestamp::from_millis(0),
        };
        let mut checked = Checked {
            headers: Some(CustomHeaders::default()),
            certificate: Some(wanted.0.map(|key| (certificate(key), facts))),
            client: Some(wanted.1.map(client)),
        };
        checked.leave_out(has);
        [
            checked.headers.is_some(),
            checked.certificate.is_some(),
            checked.client.is_some(),
        ]
    }

    #[test]
    fn putting_what_is_there_changes_nothing() {
        let has = Opened {
            identity: Some(ClientIdentity {
                secret: SECRET,
                certificate: Arc::new(certificate("a")),
            }),
            client: Some(TokenClient {
                secret: SECRET,
                client: Arc::new(client("b")),
            }),
            ..Opened::default()
        };
        assert_eq!(left((Some("a"), Some("b")), &has), [false; 3]);
        assert_eq!(left((Some("b"), Some("b")), &has), [false, true, false]);
        assert_eq!(left((Some("a"), Some("a")), &has), [false, false, true]);
        assert_eq!(left((None, None), &has), [false, true, true], "removed");
        assert_eq!(left((None, None), &Opened::default()), [false; 3]);
        let none = Opened::default();
        assert_eq!(left((Some("a"), Some("b")), &none), [false, true, true]);
    }
}
