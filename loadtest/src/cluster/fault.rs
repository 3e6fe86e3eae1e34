//! What is done to a cluster, as it is written on the command line.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// The most pods that one fault is for.
const MAX_PODS: u32 = 50;

/// The most replicas that a Deployment is scaled to.
const MAX_REPLICAS: i32 = 100;

/// One thing to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fault {
    /// Since the first event.
    pub(super) after: Duration,
    pub(super) action: Action,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    /// Ends so many running pods of a selector.
    End {
        manner: Manner,
        selector: String,
        count: u32,
    },
    Scale {
        deployment: String,
        replicas: i32,
    },
}

/// How a pod is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Manner {
    /// Asks, as a drain of its node does: a disruption budget may refuse.
    Evict,
    /// With its grace period.
    Delete,
    /// Without one: as near to `kill -9` as an API server offers.
    Kill,
}

impl Manner {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Evict => "evict",
            Self::Delete => "delete",
            Self::Kill => "kill",
        }
    }
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected =
            || format!("{text}: expected `10s evict SELECTOR [COUNT]` or `10s scale DEPLOYMENT N`");
        let words: Vec<_> = text.split_whitespace().collect();
        let (after, verb, whom, number) = match words[..] {
            [after, verb, whom] => (after, verb, whom, None),
            [after, verb, whom, number] => (after, verb, whom, Some(number)),
            _ => return Err(expected()),
        };
        let seconds = after.strip_suffix('s').and_then(|text| text.parse().ok());
        let seconds: u32 = seconds.ok_or_else(expected)?;
        let manner = match verb {
            "evict" => Manner::Evict,
            "delete" => Manner::Delete,
            "kill" => Manner::Kill,
            "scale" => {
                let replicas = number.and_then(|text| text.parse().ok());
                let replicas: i32 = replicas.ok_or_else(expected)?;
                if !(0..=MAX_REPLICAS).contains(&replicas) {
                    return Err(format!("{text}: at most {MAX_REPLICAS} replicas"));
                }
                return Ok(Self {
                    after: Duration::from_secs(seconds.into()),
                    action: Action::Scale {
                        deployment: whom.to_owned(),
                        replicas,
                    },
                });
            }
            _ => return Err(expected()),
        };
        // An empty selector would be every pod there is.
        if !whom.contains('=') {
            return Err(format!("{text}: a selector is `label=value`"));
        }
        let count = number.map_or(Ok(1), |text| text.parse().or(Err(expected())))?;
        if !(1..=MAX_PODS).contains(&count) {
            return Err(format!("{text}: 1 to {MAX_PODS} pods"));
        }
        Ok(Self {
            after: Duration::from_secs(seconds.into()),
            action: Action::End {
                manner,
                selector: whom.to_owned(),
                count,
            },
        })
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}s ", self.after.as_secs())?;
        match &self.action {
            Action::End {
                manner,
                selector,
                count,
            } => write!(f, "{} {selector} {count}", manner.as_str()),
            Action::Scale {
                deployment,
                replicas,
            } => write!(f, "scale {deployment} {replicas}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_read_as_they_are_written() {
        for text in [
            "0s evict app.kubernetes.io/name=worker 1",
            "10s delete app.kubernetes.io/name=scheduler,zone=a 2",
            "20s kill app.kubernetes.io/name=worker 50",
            "30s scale worker 0",
        ] {
            assert_eq!(text.parse::<Fault>().unwrap().to_string(), text);
        }
        let one: Fault = "5s kill a=b".parse().unwrap();
        assert_eq!(one.to_string(), "5s kill a=b 1");
    }

    #[test]
    fn what_would_be_too_much_or_is_not_understood_is_refused() {
        for text in [
            "",
            "evict a=b",
            "5 evict a=b",
            "-5s evict a=b",
            "5s evict",
            "5s evict worker",
            "5s evict a=b 0",
            "5s evict a=b 51",
            "5s evict a=b 1 2",
            "5s scale worker",
            "5s scale worker -1",
            "5s scale worker 101",
            "5s drain a=b",
        ] {
            assert!(text.parse::<Fault>().is_err(), "{text}");
        }
    }
}
