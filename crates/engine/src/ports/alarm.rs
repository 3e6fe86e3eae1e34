//! Telling those who sleep.

use tokio::sync::Notify;

/// Tells who sleeps until the first job of a schedule is due that one is due
/// sooner: what is behind [`Schedule::woken`](super::Schedule::woken) where the
/// jobs are in memory.
#[derive(Debug, Default)]
pub struct Alarm(Notify);

impl Alarm {
    /// `known` is when the first job was due, `first` when it is now.
    pub fn tell<T: Ord>(&self, known: Option<T>, first: Option<T>) {
        if first.is_some_and(|first| known.is_none_or(|known| first < known)) {
            self.0.notify_one();
        }
    }

    /// Returns when one has been told since the last return.
    pub async fn told(&self) {
        self.0.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_what_is_due_sooner_is_told() {
        let second = std::time::Duration::from_secs(1);
        for (known, first, told) in [
            (None, Some(5), true),
            (Some(7), Some(5), true),
            (Some(5), Some(5), false),
            (Some(5), Some(7), false),
            (Some(5), None, false),
        ] {
            let alarm = Alarm::default();
            alarm.tell(known, first);
            let wait = tokio::time::timeout(second, alarm.told()).await;
            assert_eq!(wait.is_ok(), told, "{known:?} {first:?}");
        }
    }
}
