//! Help, made from the table.

use crate::options::{COMMON, Kind, Opt};
use crate::table::{COMMANDS, Command};
use std::fmt::Write;

/// How a command is called: LVM's commands have names of their own.
pub fn called(command: &Command) -> String {
    if command.is_lvm { command.name.to_owned() } else { format!("rowen {}", command.name) }
}

/// A command's help.
pub fn of_command(command: &Command) -> String {
    let mut text = format!("  {} - {}\n\n", command.name, command.summary);
    for form in command.forms {
        let line = format!("  {} {form}", called(command));
        let _infallible = writeln!(text, "{}", line.trim_end());
    }
    if !command.options.is_empty() {
        text.push_str("\n  Options:\n");
        for option in command.options {
            text.push_str(&of_option(*option));
        }
    }
    text.push_str("\n  Options of every command:\n");
    for option in COMMON {
        text.push_str(&of_option(*option));
    }
    text.push_str("\n  Examples:\n");
    for (example, what) in command.examples {
        let _infallible = writeln!(text, "    {example}\n        {what}");
    }
    text
}

fn of_option(option: Opt) -> String {
    let spec = option.spec();
    let short = spec.short.map_or_else(|| "   ".to_owned(), |letter| format!("-{letter}|"));
    let value = if spec.kind == Kind::Flag { String::new() } else { format!(" {}", spec.kind.shown()) };
    format!("    {short}--{}{value}\n        {}\n", spec.long, spec.help)
}

/// The list of commands.
pub fn overview() -> String {
    let mut text = String::from(
        "  Rowen: volume groups in user space, whose snapshots cost nothing.\n\n  rowen COMMAND [OPTIONS] ..., or COMMAND by its own \
         name where it is installed.\n  Use 'rowen COMMAND --help' for more information.\n\n",
    );
    for command in COMMANDS {
        let _infallible = writeln!(text, "  {:<12}{}", command.name, command.summary);
    }
    text
}
