//! What an attempt takes with it into the ledger when it is over.
//!
//! Its row of `deliveries` is deleted and one of `ledger` inserted, by one statement. An
//! update of both by their parent would move it as well; but whoever is about to lock a row
//! that was moved gets an error, and one that was deleted is passed by.

use sqlx::AssertSqlSafe;

/// What it was made with, and when it had its last permit.
const KEPT: &str = "id, event_id, destination_id, tenant_id, try_number, due_at, created_at,
            admitted_at, tries_before, expires_at, replay_id, payload_bytes, batch_limit,
            urgent";

/// Its start, but for when that was. Of its permit only the number, by which a late outcome
/// is known: nothing is judged by the rest.
const STARTED: &str = "permit, coarse, crowded, worker_id, claimed_at, carried_by, batch_size";

/// The statement: it says `{kept}` and `{started}` where it means those columns.
pub(super) fn moving(statement: &str) -> AssertSqlSafe<String> {
    let text = statement.replace("{kept}", KEPT);
    AssertSqlSafe(text.replace("{started}", STARTED))
}
