//! A side of the comparison: what takes events, holds them, and delivers them. Both are
//! led through the same course by the same code.

use async_trait::async_trait;
use serde::Serialize;

use crate::run::processes::Watched;
use crate::run::receiving::Receiving;
use crate::run::settings::Settings;

/// Whose turn it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Who {
    Paceline,
    BullMq,
}

impl Who {
    pub(super) const BOTH: [Self; 2] = [Self::Paceline, Self::BullMq];

    /// As people read it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Paceline => "Paceline",
            Self::BullMq => "BullMQ",
        }
    }

    /// Who begins is another one in each pair: A B, B A, A B.
    pub(super) fn in_turn(pair: u32) -> [Self; 2] {
        let [a, b] = Self::BOTH;
        if pair.is_multiple_of(2) {
            [a, b]
        } else {
            [b, a]
        }
    }
}

/// One that runs. Each of its steps is bounded in time by whoever asks for it.
#[async_trait]
pub(super) trait Side: Send {
    /// Keeps it from delivering anything.
    async fn hold(&mut self) -> anyhow::Result<()>;

    /// Adds the events of these settings, by the largest pieces that it takes.
    async fn fill(&mut self, settings: &Settings) -> anyhow::Result<()>;

    /// Lets it deliver.
    async fn go(&mut self) -> anyhow::Result<()>;

    /// How many deliveries it does not know to be over. One that it has given up is an
    /// error.
    async fn left(&mut self) -> anyhow::Result<u64>;

    /// All its processes.
    fn watched(&self) -> Vec<Watched>;

    /// Ends it, and takes it away.
    async fn remove(self: Box<Self>) -> anyhow::Result<()>;
}

/// Where destinations are.
pub(super) fn urls(receiving: &Receiving, settings: &Settings) -> Vec<String> {
    let numbers = 0..settings.destinations;
    numbers.map(|number| receiving.url(number)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_begins_in_turn() {
        let first = |pair| Who::in_turn(pair)[0];
        assert_eq!(
            [first(0), first(1), first(2)],
            [Who::Paceline, Who::BullMq, Who::Paceline]
        );
        assert_eq!(Who::in_turn(1), [Who::BullMq, Who::Paceline]);
    }
}
