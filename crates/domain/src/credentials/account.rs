//! One destination's token at one worker: when it is used, when another one is asked
//! for, and what becomes of those who need one meanwhile.
//!
//! ```text
//!            nobody asks, none is held          granted
//!   none ───────────────────────────► asking ───────────► held ── its end is near ──┐
//!    ▲                                 │  ▲                │ thrown away, or ended   │
//!    │          refused: asked again   │  └────────────────┼───── asked in advance ◄─┘
//!    └──── later each time ◄───────────┘◄──────────────────┘
//! ```
//!
//! Time is the worker's own, counted from wherever it likes.

use std::time::Duration;

use super::token::{Granted, Token};

/// The first pause after a request for a token that came to nothing.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// The longest pause before a token server is asked again.
pub const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Why there is no token is shown for so long: while it is so, it is said again sooner.
pub const TROUBLE_STANDS: Duration = Duration::from_secs(150);

/// Between two requests, whatever their answers: a token that lasts for a second would
/// otherwise be asked for all the time.
const BETWEEN: Duration = Duration::from_secs(1);

/// Who needs a token while it is asked for again looks again after that.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Another one is asked for so long before its end, at most.
const IN_ADVANCE: Duration = Duration::from_secs(60);

/// And it is not used any more so long before its end, at most: it has to last until the
/// request is with its receiver, and clocks differ.
const TO_SPARE: Duration = Duration::from_secs(10);

/// A receiver that refuses a token which is younger than that would refuse the next one
/// too.
const FRESH: Duration = Duration::from_secs(10);

/// What is known of a destination's token.
#[derive(Debug, Clone, Default)]
pub struct Account {
    held: Option<Held>,
    asking: bool,
    /// Requests in a row that came to nothing.
    failures: u32,
    /// Nothing is asked before.
    not_before: Duration,
}

#[derive(Debug, Clone)]
struct Held {
    token: Token,
    since: Duration,
    /// From then on another one is asked for.
    renewed_from: Duration,
    /// From then on it is not used.
    until: Duration,
}

/// What follows for who needs a token.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct Look {
    /// What it gets.
    pub what: What,
    /// A token is to be asked for now: by nobody else until its answer is told.
    pub asks: bool,
}

/// What who needs a token gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// This one.
    Use(Token),
    /// One is asked for: wait for the answer.
    Wait,
    /// There is none; look again after so long.
    PutOff(Duration),
}

impl Account {
    /// Who needs a token looks.
    pub fn look(&mut self, now: Duration) -> Look {
        let may_ask = !self.asking && now >= self.not_before;
        if let Some(held) = self.held.as_ref().filter(|held| now < held.until) {
            let what = What::Use(held.token.clone());
            let asks = may_ask && now >= held.renewed_from;
            self.asking |= asks;
            return Look { what, asks };
        }
        self.asking |= may_ask;
        let what = match self.asking {
            false => What::PutOff(self.not_before.saturating_sub(now)),
            true if self.failures == 0 => What::Wait,
            // Its server may hang: nobody waits for that with a permit in hand.
            true => What::PutOff(LOOK_AGAIN),
        };
        Look {
            what,
            asks: may_ask,
        }
    }

    /// A token came of the request that began at `asked_at`. Whether that has to be
    /// written down: it did not before, or nobody knows.
    pub fn granted(&mut self, granted: Granted, asked_at: Duration, now: Duration) -> bool {
        let is_news = self.failures > 0 || self.held.is_none();
        let (lasts, until) = (granted.lasts, asked_at + granted.lasts);
        self.held = Some(Held {
            token: granted.token,
            since: now,
            renewed_from: until - IN_ADVANCE.min(lasts / 4),
            until: until - TO_SPARE.min(lasts / 8),
        });
        self.asking = false;
        self.failures = 0;
        self.not_before = now + BETWEEN;
        is_news
    }

    /// Nothing came of it. `jitter` is between 0 and 1: those who failed together do not
    /// come back together.
    pub fn refused(&mut self, now: Duration, jitter: f64) {
        self.asking = false;
        let doubled = FIRST_PAUSE * 2_u32.pow(self.failures.min(6));
        let pause = doubled.min(LONGEST_PAUSE);
        self.not_before = now + pause.mul_f64(0.75 + 0.25 * jitter.clamp(0.0, 1.0));
        self.failures = self.failures.saturating_add(1);
    }

    /// The receiver has refused this token.
    pub fn throw_away(&mut self, token: &Token, now: Duration) {
        let is_it = |held: &mut Held| held.token == *token && now >= held.since + FRESH;
        drop(self.held.take_if(is_it));
    }

    /// Whether an answer is awaited.
    #[must_use]
    pub const fn is_asking(&self) -> bool {
        self.asking
    }
}

#[cfg(test)]
mod tests {
    use zeroize::Zeroizing;

    use super::*;

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn token(text: &str) -> Token {
        Token::new(Zeroizing::new(text.to_owned())).unwrap()
    }

    fn granted(text: &str, seconds: u64) -> Granted {
        Granted {
            token: token(text),
            lasts: at(seconds),
        }
    }

    fn look(what: What, asks: bool) -> Look {
        Look { what, asks }
    }

    #[test]
    fn one_asks_and_the_others_wait() {
        let mut account = Account::default();
        assert_eq!(account.look(at(0)), look(What::Wait, true));
        assert_eq!(account.look(at(1)), look(What::Wait, false));
        assert!(account.granted(granted("a", 3_600), at(0), at(2)));
        assert_eq!(account.look(at(2)), look(What::Use(token("a")), false));
    }

    #[test]
    fn another_one_is_asked_for_before_its_end() {
        let mut account = Account::default();
        let _ = account.look(at(0));
        let _ = account.granted(granted("a", 3_600), at(0), at(0));
        let used = || What::Use(token("a"));
        assert_eq!(account.look(at(3_539)), look(used(), false));
        assert_eq!(account.look(at(3_540)), look(used(), true), "in advance");
        assert_eq!(account.look(at(3_541)), look(used(), false), "once");
        account.refused(at(3_542), 1.0);
        assert_eq!(account.look(at(3_542)), look(used(), false), "still good");
        assert_eq!(account.look(at(3_543)), look(used(), true), "asked again");
        assert_eq!(
            account.look(at(3_590)),
            look(What::PutOff(LOOK_AGAIN), false)
        );
        assert!(account.granted(granted("b", 3_600), at(3_590), at(3_591)));
        assert_eq!(account.look(at(3_591)), look(What::Use(token("b")), false));
        assert!(
            !account.granted(granted("c", 9), at(3_592), at(3_592)),
            "no news"
        );
    }

    #[test]
    fn a_server_that_gives_none_is_asked_later_each_time() {
        let mut account = Account::default();
        let (mut now, mut pauses) = (at(0), Vec::new());
        for _ in 0..9 {
            assert!(account.look(now).asks);
            account.refused(now, 1.0);
            let Look { what, asks } = account.look(now);
            assert!(!asks);
            let What::PutOff(pause) = what else {
                panic!("nobody waits: {what:?}");
            };
            pauses.push(pause.as_secs());
            now += pause;
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        assert_eq!(account.look(now), look(What::PutOff(LOOK_AGAIN), true));
        assert!(LONGEST_PAUSE * 2 < TROUBLE_STANDS);
    }

    #[test]
    fn what_failed_together_does_not_come_back_together() {
        let (mut one, mut other) = (Account::default(), Account::default());
        one.refused(at(0), 0.0);
        other.refused(at(0), 1.0);
        let pause = |account: &mut Account| account.look(at(0)).what;
        assert_ne!(pause(&mut one), pause(&mut other));
    }

    #[test]
    fn a_token_that_is_refused_is_thrown_away_unless_it_is_fresh() {
        let mut account = Account::default();
        let _ = account.look(at(0));
        let _ = account.granted(granted("a", 3_600), at(0), at(0));
        account.throw_away(&token("a"), at(9));
        assert_eq!(account.look(at(9)).what, What::Use(token("a")));
        account.throw_away(&token("b"), at(100));
        assert_eq!(account.look(at(100)).what, What::Use(token("a")), "another");
        account.throw_away(&token("a"), at(100));
        assert_eq!(account.look(at(100)), look(What::Wait, true));
    }

    #[test]
    fn a_short_token_is_used_and_not_asked_for_all_the_time() {
        let mut account = Account::default();
        let _ = account.look(at(0));
        let _ = account.granted(granted("a", 1), at(0), at(0));
        let half = Duration::from_millis(500);
        assert_eq!(account.look(half), look(What::Use(token("a")), false));
        let end = Duration::from_millis(900);
        let put_off = What::PutOff(Duration::from_millis(100));
        assert_eq!(account.look(end), look(put_off, false));
        assert_eq!(account.look(at(1)), look(What::Wait, true));
    }
}
