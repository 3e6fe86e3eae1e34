//! The post: messages to people, by SMTP and to incoming webhooks.

mod chat;
mod mail;

pub use mail::{BadMail, Mail};

use std::sync::Arc;

use async_trait::async_trait;
use domain::notices::{NoticeForm, Written};
use domain::time::Timestamp;
use engine::ports::{Post, PostTo, Sender, Unsent};

/// Sends by SMTP, where a server is set, and to webhooks as to any destination.
pub struct PostOffice {
    mail: Option<Mail>,
    sender: Arc<dyn Sender>,
    clock: fn() -> Timestamp,
}

impl PostOffice {
    /// Webhooks are called by this sender: what it may not reach, they are not.
    #[must_use]
    pub fn new(mail: Option<Mail>, sender: Arc<dyn Sender>, clock: fn() -> Timestamp) -> Self {
        Self {
            mail,
            sender,
            clock,
        }
    }
}

#[async_trait]
impl Post for PostOffice {
    fn forms(&self) -> Vec<NoticeForm> {
        let mail = self.mail.as_ref().map(|_| NoticeForm::Email);
        mail.into_iter().chain([NoticeForm::Slack]).collect()
    }

    async fn send(&self, to: &PostTo, message: &Written) -> Result<(), Unsent> {
        match to {
            PostTo::Email(address) => {
                let mail = self.mail.as_ref().ok_or_else(|| {
                    Unsent("this process has no mail server: set PACELINE_SMTP_URL".to_owned())
                })?;
                mail.send(address, message, (self.clock)()).await
            }
            PostTo::Slack(address, url) => {
                let now = (self.clock)();
                chat::send(self.sender.as_ref(), (*address, url), message, now).await
            }
        }
    }
}
