//! Which resources are worth a look before their turn: pure, and told the time.
//!
//! A look costs requests to the API server and statements, so an idle destination
//! has one every five minutes. A glance is one statement for all of them. What it
//! shows is told within seconds: a breaker that opens or closes, a state that
//! changes, and work that has come and stays.

use std::collections::HashMap;
use std::time::Duration;

use domain::destination::DestinationState;
use tokio::time::Instant;

use crate::destinations::Glance;
use crate::plan::BUSY;

/// Between two glances.
pub const EVERY: Duration = Duration::from_secs(5);

/// What the last glances came to.
#[derive(Debug, Default)]
pub struct Stir {
    seen: HashMap<String, Seen>,
}

#[derive(Debug, Clone, Copy)]
struct Seen {
    state: DestinationState,
    breaker_is_open: bool,
    has_work: bool,
    /// When it was looked at for its work, and from then on in its turn.
    looked_at: Option<Instant>,
}

impl Stir {
    /// The resources that are worth a look; those that are seen for the first time
    /// have just had one.
    pub fn worth_a_look(&mut self, glances: &[Glance], now: Instant) -> Vec<String> {
        let before = std::mem::take(&mut self.seen);
        let mut worth = Vec::new();
        for glance in glances {
            let last = before.get(&glance.resource);
            let mut seen = Seen {
                state: glance.state,
                breaker_is_open: glance.breaker_is_open,
                has_work: glance.has_work,
                looked_at: last.and_then(|last| last.looked_at),
            };
            if last.is_some_and(|last| differs(last, &seen, now)) {
                seen.looked_at = Some(now);
                worth.push(glance.resource.clone());
            }
            self.seen.insert(glance.resource.clone(), seen);
        }
        worth
    }
}

/// Work counts when it was there at the last glance, too: what comes and goes within
/// seconds is as it should be. One that has work is busy, and has its turn by that.
fn differs(last: &Seen, now_seen: &Seen, now: Instant) -> bool {
    let changed = (last.state, last.breaker_is_open) != (now_seen.state, now_seen.breaker_is_open);
    let is_due = (last.looked_at).is_none_or(|at| now.duration_since(at) >= BUSY);
    changed || (last.has_work && now_seen.has_work && is_due)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn glance(breaker_is_open: bool, has_work: bool) -> Glance {
        Glance {
            resource: "paceline/shop".to_owned(),
            state: DestinationState::Active,
            breaker_is_open,
            has_work,
        }
    }

    /// Whether each of these glances, one after the other, is worth a look.
    fn worth(glances: &[Glance]) -> Vec<bool> {
        let (mut stir, mut now) = (Stir::default(), Instant::now());
        let mut of = |glance: &Glance| {
            now += EVERY;
            !stir
                .worth_a_look(std::slice::from_ref(glance), now)
                .is_empty()
        };
        glances.iter().map(&mut of).collect()
    }

    #[test]
    fn a_breaker_is_told_when_it_changes() {
        let [closed, open] = [glance(false, false), glance(true, false)];
        let glances = [closed.clone(), open.clone(), open, closed.clone(), closed];
        assert_eq!(worth(&glances), [false, true, false, true, false]);
    }

    #[test]
    fn work_is_told_when_it_stays_and_then_in_its_turn() {
        let [idle, busy] = [glance(false, false), glance(false, true)];
        let coming_and_going = [idle.clone(), busy.clone(), idle.clone(), busy.clone(), idle];
        assert_eq!(worth(&coming_and_going), [false; 5]);
        let told = worth(&vec![busy; 14]);
        let at: Vec<usize> = (0..14).filter(|at| told[*at]).collect();
        assert_eq!(at, [1, 7, 13], "each 30 s");
    }

    #[test]
    fn who_is_gone_is_forgotten() {
        let (mut stir, now) = (Stir::default(), Instant::now());
        stir.worth_a_look(&[glance(false, false)], now);
        stir.worth_a_look(&[], now);
        assert_eq!(stir.worth_a_look(&[glance(true, true)], now), [""; 0]);
    }
}
