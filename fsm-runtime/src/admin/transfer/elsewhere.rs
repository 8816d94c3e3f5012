//! The children in other partitions than their parents, in an import: the numbers of partitions that both sides know of each other.

use fsm_core::partition::partition_of;
use fsm_store::parent_elsewhere::ParentElsewhere;
use fsm_store::transfer::{self, Field};

use super::lines::text_of;
use crate::error::Error;

/// True if the row is a child that its parent started in another partition.
pub(super) fn is_started_elsewhere(table: usize, row: &[Field]) -> bool {
    text_of(table, row, "parent_elsewhere").is_some()
}

/// Sets the number of the parent's partition, of this many, in the row of a child that was started in another one. The two may be in one partition
/// from now on; they are connected by notices nevertheless.
pub(super) fn set_partition_of_parent(table: usize, row: &mut [Field], partitions: u32) -> Result<(), Error> {
    let Some(text) = text_of(table, row, "parent_elsewhere") else { return Ok(()) };
    let parent: ParentElsewhere = serde_json::from_str(text)
        .map_err(|error| Error::input(format!("the parent of a child in another partition cannot be read: {error}")))?;
    let moved = ParentElsewhere { partition: partition_of(&parent.key, partitions), ..parent };
    let text = serde_json::to_string(&moved).expect("it has texts and a number");
    row[transfer::position(table, "parent_elsewhere").expect("an instance has this column")] = Field::Text(Some(text));
    Ok(())
}

/// Sets the number of the child's partition, of this many, in the row that stands for it.
pub(super) fn set_partition_of_child(table: usize, row: &mut [Field], partitions: u32) {
    let there = partition_of(text_of(table, row, "key").unwrap_or_default(), partitions);
    row[transfer::position(table, "partition").expect("a child in another partition has this column")] = Field::Number(Some(there.into()));
}

/// Returns an error for a child that has not ended, and that was started in another partition: without partitions nothing delivers its end.
pub(super) fn check_without_partitions(table: usize, row: &[Field]) -> Result<(), Error> {
    let is_of_both = match transfer::name(table) {
        "instances" => is_started_elsewhere(table, row),
        name => name == "remote_children",
    };
    let [machine, key, status] = ["machine", "key", "status"].map(|column| text_of(table, row, column).unwrap_or_default());
    if !is_of_both || !matches!(status, "running" | "error") {
        return Ok(());
    }
    Err(Error::input(format!(
        "`{machine}` `{}` is a child of an instance in another partition, and has not ended: only a database with partitions can deliver its end",
        key.escape_debug()
    )))
}
