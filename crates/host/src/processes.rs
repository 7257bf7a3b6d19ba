//! Other processes, as /proc shows them. Only what can be read of a process that hangs is read.

use rowen_control::status::Process;

/// A process, and what it does at this moment.
pub fn see(pid: u32) -> Process {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    Process { pid, state: name_and_state(&stat).map(|(_, state)| state) }
}

/// A process's name and the letter of its state.
fn name_and_state(stat: &str) -> Option<(&str, char)> {
    let (name, rest) = (stat.split_once('(')?.1).rsplit_once(')')?;
    Some((name, rest.trim_start().chars().next()?))
}

/// How many processes of these names wait in the kernel, where nothing ends them.
pub fn stuck(names: &[&str]) -> usize {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes = entries.filter(|entry| entry.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit));
    let is_stuck =
        |stat: String| name_and_state(&stat).is_some_and(|(name, state)| state == 'D' && names.contains(&name));
    processes.filter(|entry| std::fs::read_to_string(entry.path().join("stat")).is_ok_and(is_stuck)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_a_name_and_a_state() {
        assert_eq!(name_and_state("12 (a (b) c) D 1 2"), Some(("a (b) c", 'D')));
        assert_eq!(name_and_state(""), None);
        let own = see(std::process::id());
        assert!(matches!(own.state, Some('R' | 'S')), "{own:?}");
    }
}
