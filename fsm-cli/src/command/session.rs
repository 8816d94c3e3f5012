//! The output and the database of a command, shared by all commands.

use fsm_runtime::admin::{Admin, Definition, Opening};

use crate::problem::Problem;
use crate::stage::Stage;

/// A command's output and database.
pub(super) struct Session<'s, 'a> {
    pub(super) stage: &'s mut Stage<'a>,
    /// The way to open the database for reading.
    pub(super) opening: Opening,
    pub(super) is_json: bool,
}

impl Session<'_, '_> {
    pub(super) async fn to_read(&self) -> Result<Admin, Problem> {
        Ok(Admin::open(self.opening.clone()).await?)
    }

    pub(super) async fn to_act(&self) -> Result<Admin, Problem> {
        Ok(Admin::open(self.opening.clone().acting()).await?)
    }
}

/// The machine of this name, or all machines without a name.
pub(super) fn selected<'m>(admin: &'m Admin, machine: Option<&str>) -> Result<Vec<&'m Definition>, Problem> {
    match machine {
        Some(name) => Ok(vec![admin.machine(name)?]),
        None => Ok(admin.machines().iter().collect()),
    }
}
