//! A store that can be put back: the same rows again, however often somebody tries what
//! a call would do to them.
//!
//! It is in a file of its own, whose bytes are taken and written over as they are. Its
//! connection stays, with the schema that it has read and its statements: to open and
//! read it anew for each try would cost several times what a call does.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use domain::time::Timestamp;
use engine::ports::StoreError;
use rusqlite::Connection;
use rusqlite::types::ValueRef;

use super::rows::all;
use super::sqlite::{Pace, SimulatedStore, unavailable};
use crate::model::ModelClock;

/// What rows are in, and who gets the next number.
const TABLES: &str = "
    select name from sqlite_schema
    where type = 'table' and name not like 'sqlite_stat%' order by name";

/// By which a connection sees that its file has changed, in the file's header: the change
/// counter, and for which value of it the size beside it is valid.
const CHANGE_COUNTERS: [usize; 2] = [24, 92];

/// No two images have the same, nor what commits on one make of it: each adds one.
static COUNTED: AtomicU32 = AtomicU32::new(0);

/// More than there are commits between two images.
const COMMITS: u32 = 64;

impl SimulatedStore {
    /// An empty, migrated store in a new file. Its clock shows `base`, and stands still
    /// but where it is set.
    pub fn in_file(path: &Path, base: Timestamp, head_start: Duration) -> Result<Self, StoreError> {
        let connection = Connection::open(path).map_err(unavailable)?;
        let store = Self::on(connection, ModelClock::new(base), Pace::Still, head_start)?;
        // No log beside the file: all is in it after each commit.
        let in_place = "pragma journal_mode = memory; pragma synchronous = off";
        let connection = store.connection();
        connection.execute_batch(in_place).map_err(unavailable)?;
        drop(connection);
        Ok(store)
    }

    /// All of a store that is in this file.
    pub fn image(&self, path: &Path) -> Result<Vec<u8>, StoreError> {
        let _stands_still = self.connection();
        fs::read(path).map_err(|problem| StoreError::Unavailable(problem.to_string()))
    }

    /// The store is again as when this image was taken of it.
    pub fn restore(&self, path: &Path, image: &[u8]) -> Result<(), StoreError> {
        let mut image = image.to_vec();
        let number = COUNTED.fetch_add(COMMITS, Ordering::Relaxed).to_be_bytes();
        for at in CHANGE_COUNTERS {
            image[at..at + number.len()].copy_from_slice(&number);
        }
        self.end_changes();
        let _stands_still = self.connection();
        fs::write(path, image).map_err(|problem| StoreError::Unavailable(problem.to_string()))
    }

    /// All rows of all tables: two stores that have the same answer every call alike.
    #[must_use]
    pub fn dump(&self) -> Vec<u8> {
        let connection = self.connection();
        let tables: Vec<String> = all(&connection, TABLES, [], |row| row.get(0));
        let mut dump = Vec::new();
        for table in tables {
            dump.extend(table.as_bytes());
            let rows = all(&connection, &format!("select * from {table}"), [], |row| {
                let mut text = Vec::new();
                for column in 0..row.as_ref().column_count() {
                    write(&mut text, row.get_ref(column)?);
                }
                Ok(text)
            });
            rows.iter().for_each(|row| dump.extend(row));
        }
        dump
    }
}

/// Each value with its kind and length: no two lists of them are written alike.
fn write(text: &mut Vec<u8>, value: ValueRef<'_>) {
    let (kind, bytes) = match value {
        ValueRef::Null => (0, Vec::new()),
        ValueRef::Integer(number) => (1, number.to_le_bytes().to_vec()),
        ValueRef::Real(number) => (2, number.to_le_bytes().to_vec()),
        ValueRef::Text(bytes) => (3, bytes.to_vec()),
        ValueRef::Blob(bytes) => (4, bytes.to_vec()),
    };
    text.push(kind);
    text.extend((bytes.len() as u64).to_le_bytes());
    text.extend(bytes);
}
