//! Commands that generate documents from the tables, for `make man`, `make docs` and packages. The list of commands
//! does not show them, because users do not need them.

use crate::command::Command;
use crate::documents;
use crate::failure::{Failure, Result};
use crate::parse::Args;
use crate::session::Session;
use std::path::Path;

/// Writes all manual pages into a directory.
pub fn man(session: &mut Session<'_>, args: &Args, commands: &[Command]) -> Result {
    let [directory] = args.positionals.as_slice() else { return Err(Failure::NoForm) };
    let directory = Path::new(directory);
    let failed = |path: &Path, error: std::io::Error| Failure::failed(format!("{}: {error}.", path.display()));
    std::fs::create_dir_all(directory).map_err(|error| failed(directory, error))?;
    for page in documents::pages(commands) {
        let path = directory.join(&page.file);
        std::fs::write(&path, page.text).map_err(|error| failed(&path, error))?;
    }
    session.console.flush();
    Ok(())
}

/// Prints the completion for a shell.
pub fn completion(session: &mut Session<'_>, args: &Args, commands: &[Command]) -> Result {
    let text = match args.positionals.first().map(String::as_str) {
        Some("bash") => documents::bash(commands),
        Some("zsh") => documents::zsh(commands),
        _ => return Err(Failure::NoForm),
    };
    session.console.raw_out(&text);
    Ok(())
}

/// Prints `docs/lvm.md`.
pub fn compatibility(session: &mut Session<'_>, commands: &[Command]) -> Result {
    session.console.raw_out(&documents::compatibility(commands));
    Ok(())
}
