//! LVM's shell: `lvm` without a command reads commands from standard input, one a line, until the end or `exit`. This
//! module splits lines into words. A failed command does not affect the next one, and the shell always ends with
//! success.

use crate::failure::exit;
use crate::session::Session;
use std::io::{self, IsTerminal};

/// Runs the command of a name with these words, or shows help; `None`: there is no such command.
pub type RunNamed = fn(&mut Session<'_>, &str, &[String]) -> Option<u8>;

/// Reads commands and runs them with `run_named`, until there are no more.
pub fn run(session: &mut Session<'_>, run_named: RunNamed) -> u8 {
    let is_interactive = io::stdin().is_terminal();
    loop {
        session.console.flush();
        if is_interactive {
            session.console.raw_out("lvm> ");
            session.console.flush();
        }
        let Some(line) = session.console.read_line() else {
            session.console.raw_out("\n");
            return exit::OK;
        };
        let words = split(&line);
        // `lvm vgs` in the shell means vgs.
        let words = if words.first().is_some_and(|word| word == "lvm") { &words[1..] } else { &words[..] };
        let Some((name, rest)) = words.split_first() else { continue };
        if name == "quit" || name == "exit" {
            session.console.complain("Exiting.");
            return exit::OK;
        }
        session.is_test = false;
        session.console.set_silent(false);
        session.command_line = words.join(" ");
        if run_named(session, name, rest).is_none() {
            session.console.complain(format!("No such command '{name}'.  Try 'help'."));
        }
    }
}

/// The words of a line. Blanks separate words, quotes around a word keep its blanks, and a line that begins with `#` is
/// a comment.
fn split(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = line.trim_start();
    if rest.starts_with('#') {
        return words;
    }
    while !rest.is_empty() {
        let quote = rest.chars().next().filter(|first| matches!(first, '"' | '\''));
        let body = &rest[quote.map_or(0, char::len_utf8)..];
        let is_end = |c: char| quote.map_or(c.is_whitespace(), |quote| c == quote);
        let end = body.find(is_end).unwrap_or(body.len());
        words.push(body[..end].trim_end_matches('\n').to_owned());
        let mut after = body[end..].chars();
        after.next();
        rest = after.as_str().trim_start();
    }
    words
}

#[cfg(test)]
mod tests {
    use super::split;
    use crate::fake::Fake;

    #[test]
    fn lines_become_words() {
        assert_eq!(split("  vgs -o vg_name  \n"), ["vgs", "-o", "vg_name"]);
        assert_eq!(split("lvs -S 'lv_name = a' \"b c\"d\n"), ["lvs", "-S", "lv_name = a", "b c", "d"]);
        assert_eq!(split("lvs -o \"lv name\n"), ["lvs", "-o", "lv name"]);
        assert_eq!(split("vgs # x\n"), ["vgs", "#", "x"]);
        for nothing in ["", "\n", "   \n", "# vgs\n", "  #\n"] {
            assert!(split(nothing).is_empty(), "{nothing:?}");
        }
    }

    #[test]
    fn commands_are_read_until_the_end() {
        let mut world = Fake::new();
        world.run("pvcreate /dev/ubda");
        world.run("vgcreate vg0 /dev/ubda");
        let lines = "lvcreate -qq -l1 -n one vg0\nlvcreate -t -l1 -n no vg0\nnosuch\nlvremove vg0/none\n\
                     lvm lvcreate -l1 -n two vg0\nlvremove vg0/one\ny\nquit\nlvremove -f vg0/two\n";
        let printed = world.run_words("lvm", &[], Some(lines));
        assert_eq!(printed.code, 0);
        assert!(
            printed.out.ends_with("\"two\" created.\n  Logical volume \"one\" successfully removed.\n"),
            "{printed:?}"
        );
        assert!(!printed.out.contains("\"one\" created"), "{printed:?}");
        assert!(printed.err.contains("No such command 'nosuch'.  Try 'help'.\n"), "{printed:?}");
        assert!(printed.err.ends_with("Exiting.\n"), "{printed:?}");
        assert_eq!(world.report("vg0").volumes.len(), 1);
        assert_eq!(world.run_words("lvm", &[], Some("vgs -o vg_name")).out, "  VG \n  vg0\n\n");
    }
}
