//! Structs that are read from a row of Postgres's, without sqlx's derive: what that one
//! needs (a second sqlx with its runtime and TLS, for the compiler's own process) takes
//! longer to build than half of our crates.

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

        impl<'r> ::sqlx::FromRow<'r, ::sqlx::postgres::PgRow> for $name {
            fn from_row(row: &'r ::sqlx::postgres::PgRow) -> ::std::result::Result<Self, ::sqlx::Error> {
                Ok(Self {
                    $($column: ::sqlx::Row::try_get(row, stringify!($column))?,)*
                    $($part: ::sqlx::FromRow::from_row(row)?,)*
                })
            }
        }
    };
}

pub(crate) use row;
