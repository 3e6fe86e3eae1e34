//! Structs that are read from a row of Postgres's, without sqlx's derive: what that one
//! needs (a second sqlx with its runtime and TLS, for the compiler's own process) takes
//! longer to build than half of our crates.
//!
//! A column is read where it stands: to look each of a claim's up by its name costs
//! sixteen hashes for every delivery. Names still decide, so that the order of a
//! statement's columns is free; the struct's own order costs least.

use sqlx::postgres::PgRow;
use sqlx::{Column, ColumnIndex, Decode, Postgres, Row, Type};

/// A struct of [`row!`](crate::row!), or a part of one.
pub trait Columns<'r>: Sized {
    /// Reads its columns. `next` is where the first of them is looked for, as an index
    /// from 0; afterwards it is that of the column behind the last.
    ///
    /// # Errors
    /// As [`column`].
    fn read(row: &'r PgRow, next: &mut usize) -> Result<Self, sqlx::Error>;
}

/// The column of this name: the one at `next`, if that is it, or whichever is. `next` is
/// behind it then.
///
/// # Errors
/// That there is none, or that it is not of this type.
pub fn column<'r, T>(row: &'r PgRow, next: &mut usize, name: &str) -> Result<T, sqlx::Error>
where
    T: Decode<'r, Postgres> + Type<Postgres>,
{
    let stands_there = (row.columns().get(*next)).is_some_and(|column| column.name() == name);
    let at = match stands_there {
        true => *next,
        false => ColumnIndex::index(&name, row)?,
    };
    *next = at + 1;
    // An error names the column.
    row.try_get(at).or_else(|_by_position| row.try_get(name))
}

/// A struct whose fields are the columns of the same names. One after `..` is itself
/// such a struct, of columns of the same row.
///
/// ```text
/// row! {
///     struct Due {
///         id: Uuid,
///         ..address: Address,
///     }
/// }
/// ```
///
/// For the load test as well, which reads the same tables.
#[doc(hidden)]
#[macro_export]
macro_rules! row {
    (
        $(#[$attribute:meta])*
        $visible:vis struct $name:ident {
            $($(#[$about:meta])* $seen:vis $column:ident: $of:ty,)*
            $(..$shown:vis $part:ident: $part_of:ty,)*
        }
    ) => {
        $(#[$attribute])*
        $visible struct $name {
            $($(#[$about])* $seen $column: $of,)*
            $($shown $part: $part_of,)*
        }

        impl<'r> $crate::row::Columns<'r> for $name {
            fn read(
                row: &'r ::sqlx::postgres::PgRow,
                next: &mut usize,
            ) -> ::std::result::Result<Self, ::sqlx::Error> {
                Ok(Self {
                    $($column: $crate::row::column(row, next, stringify!($column))?,)*
                    $($part: $crate::row::Columns::read(row, next)?,)*
                })
            }
        }

        impl<'r> ::sqlx::FromRow<'r, ::sqlx::postgres::PgRow> for $name {
            fn from_row(row: &'r ::sqlx::postgres::PgRow) -> ::std::result::Result<Self, ::sqlx::Error> {
                $crate::row::Columns::read(row, &mut 0)
            }
        }
    };
}

pub(crate) use row;
