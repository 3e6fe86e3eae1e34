//! Mail: plain text over SMTP, one connection for each message.

use std::time::{Duration, SystemTime};

use domain::notices::Written;
use domain::time::Timestamp;
use engine::ports::Unsent;
use lettre::message::header::{ContentType, HeaderName, HeaderValue};
use lettre::message::{Mailbox, MessageBuilder};
use lettre::{AsyncSmtpTransport, AsyncTransport, Message, Tokio1Executor};
use url::Url;

/// For a connection, and for each answer of the server.
const ANSWER: Duration = Duration::from_secs(10);

/// For a message from the first byte to the last.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Programs that answer mail by themselves leave these alone: RFC 3834, and
/// what Exchange goes by.
const NO_REPLIES: [(&str, &str); 3] = [
    ("Auto-Submitted", "auto-generated"),
    ("X-Auto-Response-Suppress", "All"),
    ("Precedence", "bulk"),
];

/// Why mail cannot be sent at all. Repeats nothing of a URL, which may hold a
/// password.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadMail {
    /// The URL of the server.
    #[error(
        "must be smtp://HOST, smtp://USER:PASSWORD@HOST?tls=required or smtps://USER:PASSWORD@HOST"
    )]
    Url,
    /// A password that everybody on the way could read.
    #[error("has a password, so it must be encrypted: use smtps:// or add ?tls=required")]
    Clear,
    /// Whom mails are from.
    #[error("must be a mail address, such as Paceline <paceline@example.com>")]
    From,
}

/// A mail server, and whom mails are from.
pub struct Mail {
    transport: AsyncSmtpTransport<Tokio1Executor>,
    from: Mailbox,
}

impl Mail {
    /// Dials nothing yet.
    pub fn new(url: &str, from: &str) -> Result<Self, BadMail> {
        let parsed = Url::parse(url).map_err(|_repeats_it| BadMail::Url)?;
        let required = parsed.query() == Some("tls=required");
        if parsed.password().is_some() && parsed.scheme() == "smtp" && !required {
            return Err(BadMail::Clear);
        }
        let transport = AsyncSmtpTransport::<Tokio1Executor>::from_url(url);
        let transport = transport.map_err(|_repeats_it| BadMail::Url)?;
        Ok(Self {
            transport: transport.timeout(Some(ANSWER)).build(),
            from: from.parse().map_err(|_repeats_it| BadMail::From)?,
        })
    }

    pub(super) async fn send(
        &self,
        to: &str,
        message: &Written,
        now: Timestamp,
    ) -> Result<(), Unsent> {
        let unsent = |problem: &dyn std::fmt::Display| Unsent(format!("mail: {problem}"));
        let mail = self.mail(to, message, now).map_err(|e| unsent(&e))?;
        match tokio::time::timeout(TIMEOUT, self.transport.send(mail)).await {
            Ok(Ok(_accepted)) => Ok(()),
            Ok(Err(error)) => Err(unsent(&with_causes(&error))),
            Err(_elapsed) => Err(unsent(&format!("not sent within {TIMEOUT:?}"))),
        }
    }

    fn mail(
        &self,
        to: &str,
        message: &Written,
        now: Timestamp,
    ) -> Result<Message, Box<dyn std::error::Error + Send + Sync>> {
        let micros = u64::try_from(now.as_micros()).unwrap_or_default();
        let mut mail: MessageBuilder = Message::builder()
            .from(self.from.clone())
            .to(Mailbox::new(None, to.parse()?))
            .subject(&message.subject)
            .message_id(Some(format!("<{}@paceline>", message.id)))
            .date(SystemTime::UNIX_EPOCH + Duration::from_micros(micros))
            .header(ContentType::TEXT_PLAIN);
        for (name, value) in NO_REPLIES {
            let name = HeaderName::new_from_ascii_str(name);
            mail = mail.raw_header(HeaderValue::new(name, value.to_owned()));
        }
        Ok(mail.body(message.text.clone())?)
    }
}

fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(one) = cause {
        text = format!("{text}: {one}");
        cause = one.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(url: &str, from: &str) -> Option<BadMail> {
        Mail::new(url, from).err()
    }

    #[tokio::test]
    async fn a_server_is_taken_with_its_password_only_where_that_is_encrypted() {
        let from = "Paceline <paceline@example.com>";
        for good in [
            "smtp://localhost:25",
            "smtp://localhost?tls=opportunistic",
            "smtp://ann:hunter2@mail.example.com?tls=required",
            "smtps://ann:hunter2@mail.example.com",
        ] {
            assert_eq!(problem(good, from), None, "{good}");
        }
        for clear in [
            "smtp://ann:hunter2@mail.example.com",
            "smtp://ann:hunter2@mail.example.com?tls=opportunistic",
        ] {
            assert_eq!(problem(clear, from), Some(BadMail::Clear), "{clear}");
        }
        for bad in ["", "mail.example.com", "http://a", "smtp://a?tls=maybe"] {
            assert_eq!(problem(bad, from), Some(BadMail::Url), "{bad}");
        }
        for bad in ["", "nobody", "a@b.com\r\nBcc: c@d.com"] {
            assert_eq!(problem("smtp://a", bad), Some(BadMail::From), "{bad}");
        }
    }

    #[tokio::test]
    async fn headers_are_ours_and_ask_for_no_answer() {
        let mail = Mail::new("smtp://localhost", "Paceline <p@example.com>").unwrap();
        let message = Written {
            id: "a.7".to_owned(),
            subject: "ünïcode\r\nBcc: x@example.com".to_owned(),
            text: "line\n".to_owned(),
        };
        let now = Timestamp::from_millis(1_700_000_000_000);
        let sent = mail.mail("ops@example.com", &message, now).unwrap();
        let sent = String::from_utf8(sent.formatted()).unwrap();
        let (headers, _body) = sent.split_once("\r\n\r\n").unwrap();
        for line in [
            "Auto-Submitted: auto-generated",
            "Message-ID: <a.7@paceline>",
            "Date: Tue, 14 Nov 2023 22:13:20 +0000",
            "To: ops@example.com",
        ] {
            assert!(headers.contains(line), "{line}: {headers}");
        }
        assert!(!headers.contains("\r\nBcc"), "{headers}");
        assert!(
            mail.mail("ops@example.com\r\nBcc: x@y.z", &message, now)
                .is_err()
        );
    }
}
