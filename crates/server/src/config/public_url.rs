//! Where people find the dashboard: what links begin with.

use std::fmt;
use std::str::FromStr;

use url::Url;

/// An `http` or `https` address without a path, such as `https://hooks.example.com`:
/// pages link to each other from the root, so a proxy gives them a name of their own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicUrl(String);

impl PublicUrl {
    /// Its host, without a port.
    #[must_use]
    pub fn host(&self) -> Option<String> {
        Some(Url::parse(&self.0).ok()?.host_str()?.to_owned())
    }

    /// A page there, by its path.
    #[must_use]
    pub fn of(&self, path: &str) -> String {
        format!("{}{path}", self.0)
    }
}

impl fmt::Display for PublicUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for PublicUrl {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let url = Url::parse(text)
            .ok()
            .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        let Some(url) = url else {
            return Err(
                "must be http:// or https:// and a host, such as https://hooks.example.com"
                    .to_owned(),
            );
        };
        if !url.username().is_empty() || url.password().is_some() {
            return Err("must have no user and no password: everybody sees it".to_owned());
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err("must have no query: leave out what follows `?` or `#`".to_owned());
        }
        if url.path() != "/" {
            let path = url.path();
            return Err(format!(
                "must have no path, leave out {path}: the dashboard is at /dashboard below it"
            ));
        }
        Ok(Self(url.origin().ascii_serialization()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_taken_and_links_begin_with_it() {
        for (text, link) in [
            ("https://hooks.example.com", "https://hooks.example.com/x"),
            ("https://hooks.example.com/", "https://hooks.example.com/x"),
            ("HTTP://Hooks.Example:8080", "http://hooks.example:8080/x"),
            ("https://[fd00::1]:8443", "https://[fd00::1]:8443/x"),
            ("https://hooks.example:443", "https://hooks.example/x"),
        ] {
            assert_eq!(text.parse::<PublicUrl>().unwrap().of("/x"), link, "{text}");
        }
    }

    #[test]
    fn what_no_link_can_begin_with_is_refused_with_a_reason() {
        for (text, why) in [
            ("hooks.example.com", "http:// or https:// and a host"),
            ("hooks.example.com:8080", "http:// or https:// and a host"),
            ("ftp://hooks.example.com", "http:// or https:// and a host"),
            ("https://", "http:// or https:// and a host"),
            ("", "http:// or https:// and a host"),
            ("https://hooks.example.com?a=b", "no query"),
            ("https://hooks.example.com#top", "no query"),
            ("https://me:secret@hooks.example.com", "no password"),
            ("https://hooks.example.com/hooks", "leave out /hooks"),
        ] {
            let said = text.parse::<PublicUrl>().unwrap_err();
            assert!(said.contains(why), "{text}: {said}");
            assert!(!said.contains("secret"), "{said}");
        }
    }
}
