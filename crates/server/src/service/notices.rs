//! Who is told what operators must know by mail or in a chat.

use std::time::Duration;

use domain::ids::NoticeAddressId;
use domain::notices::{MAX_EVERY, MIN_EVERY, NoticeAddress, NoticeForm, email_problem};
use domain::operations::{OperationalScope, OperationalType};
use engine::ports::{NewNoticeAddress, Sealed, notice_place};
use url::Url;

use super::{Service, ServiceError, rules};
use crate::hidden::Hidden;

/// An address that somebody wants told.
#[derive(Debug, Clone, PartialEq)]
pub struct AddressDraft {
    pub form: NoticeForm,
    /// A mail address, or the URL of a webhook, which is a secret.
    pub address: Hidden,
    pub scope: OperationalScope,
    /// None is all.
    pub event_types: Vec<OperationalType>,
    /// Between two messages.
    pub every: Duration,
}

impl Service {
    /// Registers an address, as an operational destination is.
    pub async fn register_address(
        &self,
        draft: AddressDraft,
    ) -> Result<NoticeAddress, ServiceError> {
        self.may_register(draft.scope, &draft.event_types)?;
        if !(MIN_EVERY..=MAX_EVERY).contains(&draft.every) {
            let (least, most) = (MIN_EVERY.as_secs(), MAX_EVERY.as_secs());
            let problem = format!("must be from {least} to {most}");
            return Err(ServiceError::invalid("every_seconds", problem));
        }
        let id = NoticeAddressId(self.new_id());
        let (shown, sealed) = match draft.form {
            NoticeForm::Email => (mail_address(draft.address.expose())?, None),
            NoticeForm::Slack => {
                let shown = self.webhook(draft.address.expose())?;
                (shown, Some(self.sealed_webhook(id, &draft.address)))
            }
        };
        let new = NewNoticeAddress {
            id,
            scope: draft.scope,
            form: draft.form,
            shown,
            sealed,
            event_types: draft.event_types,
            every: draft.every,
        };
        Ok(self.operations.register_address(self.tenant, &new).await?)
    }

    /// Of whom this address is told, as of a destination.
    pub async fn address_told_of(
        &self,
        id: NoticeAddressId,
    ) -> Result<OperationalScope, ServiceError> {
        let all = self.addresses().await?;
        let found = all.iter().find(|one| one.id == id);
        Ok(found.map_or(OperationalScope::Tenant, |one| one.scope))
    }

    pub async fn remove_address(&self, id: NoticeAddressId) -> Result<(), ServiceError> {
        Ok(self.operations.remove_address(self.tenant, id).await?)
    }

    pub async fn addresses(&self) -> Result<Vec<NoticeAddress>, ServiceError> {
        Ok(self.operations.addresses(self.tenant).await?)
    }

    /// What may be shown of a webhook that requests may be sent to: its host.
    fn webhook(&self, text: &str) -> Result<String, ServiceError> {
        rules::url(text, &self.policy).map_err(|refused| match refused {
            ServiceError::Invalid { problem, .. } => ServiceError::invalid("address", problem),
            other => other,
        })?;
        let url = Url::parse(text)
            .map_err(|_repeats_it| ServiceError::invalid("address", "must be an absolute URL"))?;
        Ok(format!("{}/…", url.origin().ascii_serialization()))
    }

    fn sealed_webhook(&self, id: NoticeAddressId, url: &Hidden) -> Sealed {
        let (place, nonce) = (notice_place(self.tenant, id), self.mint.bytes());
        (self.signing.vault).seal(&place, &nonce, url.expose().as_bytes())
    }
}

fn mail_address(text: &str) -> Result<String, ServiceError> {
    match email_problem(text) {
        Some(problem) => Err(ServiceError::invalid("address", problem)),
        None => Ok(text.to_owned()),
    }
}
