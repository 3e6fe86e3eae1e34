//! Acme, who was given a link: what the README says that he does on his pages. A browser
//! does the same in the tests of the clients.

use crate::ask::send;
use crate::stage::poll;

/// Whoever has opened his link.
pub(crate) struct Customer {
    port: u16,
    cookie: String,
    /// What each form of his session says.
    token: String,
    /// The page of his only destination.
    endpoint: String,
}

fn between<'a>(text: &'a str, begins: &str, ends: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(begins)?;
    rest.split_once(ends).map(|(found, _)| found)
}

impl Customer {
    pub(crate) fn open(port: u16, link: &str) -> Self {
        let path = link.strip_prefix(&format!("http://127.0.0.1:{port}"));
        let mut customer = Self {
            port,
            cookie: String::new(),
            token: String::new(),
            endpoint: String::new(),
        };
        let (status, head, text) = customer.send(("POST", path.unwrap()), "");
        assert_eq!(status, 303, "{text}");
        let cookie = between(&head, "set-cookie: ", ";").unwrap();
        cookie.clone_into(&mut customer.cookie);
        let overview = customer.page("/dashboard");
        let token = between(&overview, "name=\"token\" value=\"", "\"").unwrap();
        token.clone_into(&mut customer.token);
        let places = overview.split("href=\"/dashboard/destinations/").skip(1);
        let mut ids = places.filter_map(|rest| rest.split('"').next());
        let id = ids.find(|id| id.len() == 36).unwrap();
        customer.endpoint = format!("/dashboard/destinations/{id}");
        customer
    }

    fn send(&self, what: (&str, &str), form: &str) -> (u16, String, String) {
        let origin = format!("http://127.0.0.1:{}", self.port);
        let headers = [
            ("cookie", self.cookie.as_str()),
            ("origin", origin.as_str()),
            ("sec-fetch-site", "same-origin"),
            ("content-type", "application/x-www-form-urlencoded"),
        ];
        send(self.port, what, &headers, form).unwrap()
    }

    fn page(&self, path: &str) -> String {
        let (status, _, text) = self.send(("GET", path), "");
        assert_eq!(status, 200, "{path}: {text}");
        text
    }

    /// The page after a form, wherever that leads.
    fn submit(&self, path: &str, fields: &[(&str, &str)]) -> String {
        let mut form = url::form_urlencoded::Serializer::new(String::new());
        form.append_pair("token", &self.token).extend_pairs(fields);
        let (status, head, text) = self.send(("POST", path), &form.finish());
        if status != 303 {
            assert_eq!(status, 200, "{path}: {text}");
            return text;
        }
        let head = format!("{head}\r\n");
        self.page(between(&head, "location: ", "\r\n").unwrap())
    }

    /// The 401, and what was sent.
    pub(crate) fn sees_why(&self, event: &str) {
        let refused = format!("{}/attempts?status=401", self.endpoint);
        poll("the 401", || {
            self.page(&refused).contains(event).then_some(())
        });
        let event = self.page(&format!("/dashboard/events/{event}"));
        assert!(event.contains(": 43"), "{event}");
    }

    /// A new secret, which is shown once.
    pub(crate) fn rotates(&self) -> String {
        let shown = self.submit(&format!("{}/secrets", self.endpoint), &[]);
        let secret = between(&shown, "id=\"secret\">", "<").unwrap();
        assert!(secret.starts_with("whsec_"), "{shown}");
        secret.to_owned()
    }

    /// Sends it to another place, and tries that.
    pub(crate) fn mends(&self, url: &str) {
        let fields = [("url", url), ("event_types", "order.*")];
        let changed = self.submit(&format!("{}/edit", self.endpoint), &fields);
        assert!(changed.contains(url), "{changed}");
        let tried = self.submit(&format!("{}/trial", self.endpoint), &[]);
        assert!(tried.contains("succeeded"), "{tried}");
    }

    /// The attempt that was refused went to where his endpoint was then.
    pub(crate) fn sees_where_it_went(&self, event: &str, (was, now): (&str, &str)) {
        let event = self.page(&format!("/dashboard/events/{event}"));
        let id = between(&event, "href=\"/dashboard/attempts/", "\"").unwrap();
        let attempt = self.page(&format!("/dashboard/attempts/{id}"));
        for says in [format!("POST {was}"), format!("<code>{now}</code> by now")] {
            assert!(attempt.contains(&says), "{says}: {attempt}");
        }
    }

    pub(crate) fn has_it_sent_again(&self) {
        let path = format!("{}/resend", self.endpoint);
        let hours = ("hours", "1");
        let asked = self.submit(&path, &[hours]);
        assert!(asked.contains("id=\"sure\""), "{asked}");
        let begun = self.submit(&path, &[hours, ("sure", "yes")]);
        assert!(begun.contains("id=\"replay-state\""), "{begun}");
    }

    /// It was delivered in the end, and never too fast.
    pub(crate) fn is_content(&self, event: &str) {
        let event = format!("/dashboard/events/{event}");
        poll("delivered", || {
            self.page(&event).contains("succeeded").then_some(())
        });
        let audit = self.page("/dashboard/audit");
        let says = "1 destination, 0 over: no window was over its limit.";
        assert!(audit.contains(says), "{audit}");
    }
}
