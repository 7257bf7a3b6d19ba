//! `docs/lvm.md`: LVM's commands that Rowen has, those that it does not have and why, and the differences.

use super::notes::{DIFFERENCES, REFUSED};
use crate::command::Command;
use crate::report::fields::{self, Section};
use std::fmt::Write;

/// In a cell of a table a bar ends the cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

fn code(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("`{}`", cell(text)) }
}

/// The whole document.
pub fn compatibility(all: &[Command]) -> String {
    let mut text = String::from(
        "# Rowen and LVM\n\n<!-- Made by `make docs` from the tables of commands, options and fields. Do not edit. -->\n\n\
         This page lists the commands of LVM that Rowen has, as `rowen COMMAND` or under LVM's own names\n(`make install`). \
         Sizes, units, reports, sentences and exit codes are those of LVM 2.03.16 (2: no\nsuch command; 3: the command line is \
         wrong; 5: the command failed). `COMMAND --help` and the manual pages\n(`make man`) explain the options. An option that is \
         not listed is refused by name, never ignored. An\n*accepted* option has no effect, and is there for programs that pass \
         it.\n\n## Commands\n\n",
    );
    commands(&mut text, all, true);
    text.push_str("\nRowen's own:\n\n");
    commands(&mut text, all, false);
    text.push_str("\n## Not there, and why\n\n| in LVM | why not |\n|---|---|\n");
    rows(&mut text, REFUSED);
    text.push_str("\n## Where Rowen differs\n\n| in LVM | in Rowen |\n|---|---|\n");
    rows(&mut text, DIFFERENCES);
    text.push_str(
        "\n## Fields of reports\n\nRowen has all of LVM's fields, in LVM's order and with LVM's headings. The *blank* ones have \
         no value in\nRowen, as in LVM for volumes without that feature. `lvs -o help` and rowen-fields(8) explain each\nfield.\n",
    );
    for section in Section::ALL.into_iter().filter(|section| *section != Section::Special) {
        let of_section = || fields::all().filter(move |field| field.section == section);
        let is_blank = |field: &&fields::Field| field.help.starts_with("Blank");
        let list = |fields: Vec<&fields::Field>| {
            fields.iter().map(|field| format!("`{}`", field.name)).collect::<Vec<_>>().join(" ")
        };
        let _infallible = write!(text, "\n### {}\n\n", section.title());
        let _infallible = writeln!(text, "{}", list(of_section().filter(|field| !is_blank(field)).collect()));
        let blank: Vec<_> = of_section().filter(is_blank).collect();
        if !blank.is_empty() {
            let _infallible = writeln!(text, "\n*Blank:* {}", list(blank));
        }
    }
    text
}

fn rows(text: &mut String, rows: &[(&str, &str)]) {
    for (left, right) in rows {
        let _infallible = writeln!(text, "| {} | {} |", cell(left), cell(right));
    }
}

fn commands(text: &mut String, all: &[Command], is_lvm: bool) {
    text.push_str("| command | forms | options | what |\n|---|---|---|---|\n");
    for command in all.iter().filter(|command| command.is_lvm == is_lvm) {
        let forms: Vec<String> = command.forms.iter().map(|form| code(form)).collect();
        let _infallible = writeln!(
            text,
            "| {} | {} | {} | {} |",
            code(&command.called()),
            forms.join("<br>"),
            options(command),
            cell(command.summary)
        );
    }
}

/// Options in two groups: those that have an effect, and those that are accepted and ignored, for scripts.
fn options(command: &Command) -> String {
    let of = |is_accepted: bool| {
        let specs = command.options.iter().map(|option| option.spec());
        let chosen = specs.filter(|spec| spec.help.starts_with("Accepted") == is_accepted);
        chosen.map(|spec| format!("`--{}`", spec.long)).collect::<Vec<_>>().join(" ")
    };
    match (of(false), of(true)) {
        (real, accepted) if accepted.is_empty() => real,
        (real, accepted) if real.is_empty() => format!("*accepted:* {accepted}"),
        (real, accepted) => format!("{real}<br>*accepted:* {accepted}"),
    }
}
