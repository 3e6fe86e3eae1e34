//! How a worker's places and the seats in its hand are shared.

use std::time::Duration;

/// How long a line may stand still before all leave it. The hand is held up for as
/// long at most when many begin to hang at once.
pub const STILL: Duration = Duration::from_millis(250);

/// How long anybody stands in a line that moves: a hand of full messages has a
/// permit for each place, so all of them get one while common receivers answer.
pub const LINE: Duration = Duration::from_secs(1);

/// One destination may have half of them, and that is a full message: as many as are dialled
/// at once for one that nobody has dialled.
const LEAST_DIALS: u32 = 32;

/// How many of a worker's places those that hang may have: half. What takes five
/// seconds and more counts among them, so an autoscaler whose receivers are slow has
/// to reckon with these alone.
#[must_use]
pub const fn places_of_the_slow(places: u32) -> u32 {
    places / 2
}

/// How many messages of each standing may keep the hand waiting: a quarter.
#[must_use]
pub const fn seats(hand: u16) -> u16 {
    hand / 4
}

/// Who may have how many of a worker's places.
///
/// ```text
///  places         ┌───────────────────────────────────────┐ whoever answers
///  three quarters ├─────────────────────────────┐         │ and who is new
///  half           ├───────────────────┐         │         │ and who hangs
///                 └───────────────────┴─────────┴─────────┘
///  a quarter more ┌─────────┐ whoever answers and has nothing in flight here
///                 └─────────┘
/// ```
///
/// When many begin to hang at the same moment, before anybody knows, each has
/// something in flight: so what is set aside stays free for the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shares {
    /// All that a line forms for.
    pub all: u32,
    /// Of these, those that are not known to answer, together.
    pub doubtful: u32,
    /// Of these, those that hang.
    pub hung: u32,
    /// Beside all: for those that answer and have nothing in flight.
    pub aside: u32,
    /// How many permits of destinations that answer may wait for their connections apart
    /// from their messages.
    pub dials: u32,
    /// And of those that are new: few, since most that do not connect are among them.
    pub dials_of_new: u32,
    /// So many that are free again are worth calling those that are away: at each
    /// single one, those who come would be many and find few.
    pub worth_a_call: u32,
}

impl Shares {
    /// Of so many places.
    #[must_use]
    pub const fn of(places: u32) -> Self {
        let hung = places_of_the_slow(places);
        Self {
            all: places,
            doubtful: places - places / 4,
            hung,
            aside: places / 4,
            dials: if places < LEAST_DIALS {
                LEAST_DIALS
            } else {
                places
            },
            dials_of_new: if places / 4 < LEAST_DIALS {
                LEAST_DIALS
            } else {
                places / 4
            },
            worth_a_call: if hung < 4 { 1 } else { hung / 4 },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_hang_have_half_and_with_the_new_three_quarters() {
        let of_32 = Shares::of(32);
        assert_eq!((of_32.hung, of_32.doubtful, of_32.aside), (16, 24, 8));
        assert_eq!(of_32.worth_a_call, 4);
        assert_eq!((of_32.dials, of_32.dials_of_new), (32, 32));
        let of_many = Shares::of(2_048);
        assert_eq!((of_many.dials, of_many.dials_of_new), (2_048, 512));
        assert_eq!(Shares::of(1).worth_a_call, 1);
    }

    #[test]
    fn one_that_answers_finds_a_place_whatever_the_others_do() {
        for places in 1..200 {
            let shares = Shares::of(places);
            assert!(shares.hung <= shares.doubtful && shares.doubtful <= places);
            let left = places - shares.doubtful + shares.aside;
            assert!(left > 0 || places < 4, "of {places}");
        }
    }
}
