//! The statement that reads usage, as long as the run needs it, and its rows.
//!
//! A text for each [`Past`], each with all that the one before has: whichever is asked, a
//! destination that the shortest would do for gets the same answer.

use domain::time::Timestamp;
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::QueryAs;
use sqlx::{FromRow, PgConnection, Postgres};

use super::everything::{Everything, Rest};
use super::owed::Owed;
use super::past::Past;
use super::starts::Starts;
use super::{MAX_UNFOLDED, Most, Question, Scope, everything, owed, starts};
use crate::postgres::failure::Failure;
use crate::postgres::id_range::IdRange;

/// A destination's answer.
pub(super) struct Row {
    pub(super) owed: Owed,
    pub(super) starts: Vec<i64>,
    pub(super) rest: Rest,
}

impl From<Owed> for Row {
    fn from(owed: Owed) -> Self {
        Self {
            owed,
            starts: Vec::new(),
            rest: Rest::default(),
        }
    }
}

impl From<Starts> for Row {
    fn from(row: Starts) -> Self {
        Self {
            starts: row.starts,
            ..Self::from(row.owed)
        }
    }
}

impl From<Everything> for Row {
    fn from(row: Everything) -> Self {
        Self {
            owed: row.owed,
            starts: row.starts,
            rest: row.rest,
        }
    }
}

/// What a text has more than the one before.
pub(super) struct Part {
    pub(super) columns: &'static str,
    /// What is asked of each destination, and its names.
    pub(super) arrays: &'static str,
    pub(super) names: &'static str,
    /// Joined to each destination.
    pub(super) lists: &'static str,
}

/// One row per destination; each list is bounded by the limits, none by the
/// backlog. What is owed and what is over are read by one statement: an attempt that ends
/// meanwhile is in one of them. No day of the ledger that counts no more is asked for any,
/// and nothing is admitted that would end in one of them: its start would not be counted.
fn text(past: Past) -> String {
    let (name, parts) = match past {
        Past::Nothing => ("usage, owed", vec![owed::part()]),
        Past::Starts => ("usage, starts", vec![owed::part(), starts::part()]),
        Past::Everything => {
            let all = vec![owed::part(), starts::part(), everything::part()];
            ("usage, everything", all)
        }
    };
    let each = |field: fn(&Part) -> &'static str| parts.iter().map(field).collect::<String>();
    let (columns, arrays) = (each(|part| part.columns), each(|part| part.arrays));
    let (names, lists) = (each(|part| part.names), each(|part| part.lists));
    format!(
        "-- admit: {name}
    select {columns}
    from unnest({arrays}) as r ({names}){lists}"
    )
}

/// What is asked.
pub(super) struct Asked<'a> {
    pub(super) questions: &'a [Question<'a>],
    /// As many.
    pub(super) scopes: &'a [Scope],
    pub(super) now: Timestamp,
    pub(super) open: IdRange,
}

type Statement<O> = QueryAs<'static, Postgres, O, PgArguments>;

impl Asked<'_> {
    /// The rows, read by the shortest text that does for all of them.
    pub(super) async fn rows(&self, connection: &mut PgConnection) -> Result<Vec<Row>, Failure> {
        Ok(match self.scopes.iter().map(Scope::past).max() {
            None => Vec::new(),
            Some(Past::Nothing) => {
                let found: Vec<Owed> = self.owed(Past::Nothing).fetch_all(connection).await?;
                found.into_iter().map(Row::from).collect()
            }
            Some(Past::Starts) => {
                let found: Vec<Starts> = self.starts(Past::Starts).fetch_all(connection).await?;
                found.into_iter().map(Row::from).collect()
            }
            Some(Past::Everything) => {
                let found: Vec<Everything> = self.everything().fetch_all(connection).await?;
                found.into_iter().map(Row::from).collect()
            }
        })
    }

    fn owed<O>(&self, past: Past) -> Statement<O>
    where
        O: for<'r> FromRow<'r, PgRow>,
    {
        sqlx::query_as(self.open.told(&text(past)))
            .bind(self.questions(|question| question.destination.0))
            .bind(self.scopes(|scope| scope.ahead))
            .bind(self.questions(|question| question.first_after))
            .bind(self.now.as_micros())
            .bind(self.open.first())
    }

    fn starts<O>(&self, past: Past) -> Statement<O>
    where
        O: for<'r> FromRow<'r, PgRow>,
    {
        let (starts, since) = self.newest(|scope| &scope.starts);
        self.owed(past).bind(starts).bind(since)
    }

    fn everything<O>(&self) -> Statement<O>
    where
        O: for<'r> FromRow<'r, PgRow>,
    {
        let (claims, claims_since) = self.newest(|scope| &scope.claims);
        let (answers, answers_since) = self.newest(|scope| &scope.answers);
        self.starts(Past::Everything)
            .bind(self.scopes(|scope| scope.coarse_since[0]))
            .bind(self.scopes(|scope| scope.coarse_since[1]))
            .bind(self.scopes(|scope| scope.coarse_since[2]))
            .bind(self.scopes(|scope| scope.coarse_since[3]))
            .bind(self.scopes(Scope::coarse_since))
            .bind(i64::try_from(MAX_UNFOLDED).unwrap_or(i64::MAX))
            .bind(claims)
            .bind(claims_since)
            .bind(answers)
            .bind(answers_since)
    }

    fn questions<T>(&self, of: impl Fn(&Question<'_>) -> T) -> Vec<T> {
        self.questions.iter().map(of).collect()
    }

    fn scopes<T>(&self, of: impl Fn(&Scope) -> T) -> Vec<T> {
        self.scopes.iter().map(of).collect()
    }

    fn newest(&self, of: fn(&Scope) -> &Most) -> (Vec<i32>, Vec<i64>) {
        (self.scopes.iter().map(of))
            .map(|most| (most.count, most.since))
            .unzip()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is bound is counted, so no number may be left out.
    #[test]
    fn a_text_asks_for_what_is_bound_to_it() {
        for (past, bound) in [
            (Past::Nothing, 5),
            (Past::Starts, 7),
            (Past::Everything, 17),
        ] {
            let text = text(past);
            let asks = |number: usize| {
                let asked = format!("${number}");
                (text.split(&asked).skip(1))
                    .any(|rest| !rest.starts_with(|next: char| next.is_ascii_digit()))
            };
            for number in 1..=bound {
                assert!(asks(number), "{past:?}: ${number} in {text}");
            }
            assert!(!asks(bound + 1), "{past:?}: {text}");
        }
    }

    /// Each is a node of the plan for every day that is open.
    #[test]
    fn a_plain_run_reads_little_of_the_ledger() {
        let lists = |past| text(past).matches("from ledger a").count();
        assert_eq!(lists(Past::Nothing), 0);
        assert_eq!(lists(Past::Starts), 2);
        assert_eq!(lists(Past::Everything), 8);
    }
}
