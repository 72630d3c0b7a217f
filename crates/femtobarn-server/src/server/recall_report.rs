//! Reports the [`RecallQueueStatus`] of each federation that has stores.

use std::sync::Arc;

use femtobarn_archive::{PendingEviction, QueuedRecall, Recaller};
use femtobarn_catalog::DatabaseId;

use super::state::ServerState;
use super::status_report::recall_status;
use crate::status::{MountedTape, PendingEvictionStatus, QueuedRecallStatus, RecallQueueStatus};

/// The most files of a queue that are shown.
const FILES_MAX: usize = 100;

/// The recall queue of each federation of a server.
pub(super) fn queues(state: &ServerState) -> Vec<RecallQueueStatus> {
    state.recallers.iter().map(queue).collect()
}

fn queue(export: &(String, Arc<Recaller>)) -> RecallQueueStatus {
    let (name, recaller) = export;
    let excerpt = recaller.excerpt(FILES_MAX);
    let leaving = recaller.evictor().pending(FILES_MAX).into_iter();
    let tapes = excerpt.mounted.into_iter().filter(|tape| !tape.is_object);
    RecallQueueStatus {
        sums: recall_status(export),
        mounted: tapes.map(|tape| MountedTape { store: tape.store, tape: tape.name }).collect(),
        recalls: excerpt.recalls.into_iter().map(|queued| row(name, recaller, queued)).collect(),
        leaving: leaving.map(|pending| leaving_row(name, recaller, pending)).collect(),
    }
}

fn leaving_row(
    export: &str,
    recaller: &Recaller,
    pending: PendingEviction,
) -> PendingEvictionStatus {
    PendingEvictionStatus {
        path: path_of(export, recaller, pending.database),
        is_running: pending.is_running,
        age_seconds: pending.age.as_secs(),
    }
}

/// The path of a database at the server.
fn path_of(export: &str, recaller: &Recaller, database: DatabaseId) -> String {
    let name = recaller.archive().name_of(database).unwrap_or_else(|| database.to_string());
    format!("{}/{name}.root", export.trim_end_matches('/'))
}

fn row(export: &str, recaller: &Recaller, queued: QueuedRecall) -> QueuedRecallStatus {
    let recall = queued.recall;
    let position = (!recall.tape.is_object).then_some(recall.position);
    QueuedRecallStatus {
        path: path_of(export, recaller, recall.database),
        bytes: recall.bytes,
        store: recall.tape.store,
        tape: (!recall.tape.is_object).then_some(recall.tape.name),
        position,
        user: recall.user,
        is_running: queued.is_running,
        age_seconds: queued.age.as_secs(),
        remaining_seconds: queued.remaining.as_secs_f64().ceil() as u64,
    }
}
