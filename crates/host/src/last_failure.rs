//! Why the last server of a group that did not serve failed: a file in the group's run directory, from the failure until a
//! server serves. Who tells of servers that cannot be kept up says that, too.

use crate::{paths, run_file};

/// A server failed. If the group has no directory, or the file cannot be written, the log alone has the reason.
pub(crate) fn note(group: &str, why: &str) {
    let path = paths::last_failure(group);
    if path.parent().is_some_and(|directory| directory.is_dir()) {
        let _the_log_has_it = run_file::write(&path, &why);
    }
}

/// A server serves.
pub(crate) fn forget(group: &str) {
    let _may_not_be_there = std::fs::remove_file(paths::last_failure(group));
}

/// Why the last one failed.
pub(crate) fn read(group: &str) -> Option<String> {
    run_file::read(&paths::last_failure(group)).ok().flatten()
}
