//! What `rowen` says and does of volume groups: commands of it that this program runs. This program holds no disks.

use crate::failure::{Failure, Result, failed};
use rowen_control::points::Points;
use rowen_control::uuids::parse_lvm_text;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// `rowen` says where it is; else it is beside this program, or in the PATH.
fn program() -> OsString {
    if let Some(told) = std::env::var_os("ROWEN_PROGRAM").filter(|told| !told.is_empty()) {
        return told;
    }
    let beside = std::env::current_exe().ok().and_then(|own| Some(own.parent()?.join("rowen")));
    beside.filter(|path| path.exists()).map_or_else(|| "rowen".into(), PathBuf::into_os_string)
}

fn command(words: &[&str]) -> Command {
    let mut command = Command::new(program());
    command.args(words).stdin(Stdio::null()).stderr(Stdio::inherit());
    command
}

fn not_started(error: &std::io::Error) -> Failure {
    failed(format!("Cannot run {}: {error}. Is rowen installed?", program().to_string_lossy()))
}

/// What a volume has.
pub fn points(volume: &str) -> Result<Points> {
    let output = command(&["points", "--json", volume]).output().map_err(|e| not_started(&e))?;
    if !output.status.success() {
        return Err(Failure { code: code_of(output.status), message: String::new() });
    }
    serde_json::from_slice(&output.stdout).map_err(|e| failed(format!("\"rowen points\" cannot be understood: {e}.")))
}

pub fn code_of(status: std::process::ExitStatus) -> u8 {
    status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(crate::failure::FAILED)
}

/// Starts a command whose output is a stream.
pub fn sender(words: &[&str]) -> Result<Child> {
    command(words).stdout(Stdio::piped()).spawn().map_err(|e| not_started(&e))
}

/// Starts a command that reads a stream.
pub fn receiver(words: &[&str]) -> Result<Child> {
    command(words).stdin(Stdio::piped()).spawn().map_err(|e| not_started(&e))
}

pub fn uuid(text: &str) -> Option<[u8; 16]> {
    parse_lvm_text(text).map(|uuid| uuid.0)
}
