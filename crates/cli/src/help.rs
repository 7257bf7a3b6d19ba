//! Help, made from the table.

use crate::command::Command;
use crate::options::{COMMON, Kind, Opt};
use std::fmt::Write;

/// A command's help.
pub fn of_command(command: &Command) -> String {
    let mut text = format!("  {} - {}\n\n", command.name, command.summary);
    for form in command.forms {
        let line = format!("  {} {form}", command.called());
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
pub fn overview(commands: &[Command]) -> String {
    let mut text = String::from(
        "  Rowen: volume groups in user space, whose snapshots cost nothing.\n\n  rowen COMMAND [OPTIONS] ..., or COMMAND by its own \
         name where it is installed.\n  Use 'rowen COMMAND --help' for more information.\n\n",
    );
    let width = commands.iter().map(|command| command.name.len()).max().unwrap_or_default();
    for command in commands {
        let _infallible = writeln!(text, "  {:<width$}  {}", command.name, command.summary);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::COMMANDS;

    #[test]
    fn each_command_has_its_line_in_two_columns() {
        let text = overview(COMMANDS);
        let columns: Vec<usize> = COMMANDS
            .iter()
            .map(|command| {
                let name = format!("  {} ", command.name);
                let line =
                    text.lines().find(|line| line.starts_with(&name)).unwrap_or_else(|| panic!("{name}: no line"));
                let at = line.len() - command.summary.len();
                assert!(line.ends_with(&format!("  {}", command.summary)), "the columns run into each other: {line}");
                at
            })
            .collect();
        assert!(columns.iter().all(|at| *at == columns[0]), "the texts begin in different columns: {columns:?}");
    }

    #[test]
    fn names_options_and_texts_stand_apart() {
        for command in COMMANDS.iter().chain(crate::table::HIDDEN) {
            let text = of_command(command);
            assert!(text.starts_with(&format!("  {} - {}\n", command.name, command.summary)), "{text}");
            let (_forms, options) = text.split_once("\n  Options").unwrap_or_else(|| panic!("no options: {text}"));
            for option in command.options.iter().chain(COMMON) {
                let (name, help) = (format!("--{}", option.spec().long), option.spec().help);
                let mut lines = options.lines().skip_while(|line| !line.split([' ', '|']).any(|word| word == name));
                assert!(lines.next().is_some(), "{}: {name} has no line", command.name);
                assert_eq!(lines.next(), Some(format!("        {help}").as_str()), "{}: {name}", command.name);
            }
        }
    }
}
