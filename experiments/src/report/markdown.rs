//! An experiment's tables in Markdown, for the documentation.

use super::{Cell, Section, Table, parts, remarks, words};
use crate::catalogue::Experiment;
use crate::stats::number;
use std::fmt::Write;

/// What a file of one experiment holds.
pub fn table(section: &Section<'_>) -> String {
    let experiment = section.experiment;
    let mut out = format!("# {}\n\n", experiment.title);
    if let Some(source) = &experiment.source {
        let _ = writeln!(out, "Source: \"{}\", {}, {}.\n", source.title, source.author, source.year);
    } else {
        out += "Source: none; nobody publishes these figures.\n\n";
    }
    let _ = writeln!(out, "**Question.** {}\n", experiment.question);
    let _ = writeln!(out, "**Expected.** {}\n", experiment.expected);
    let _ = writeln!(out, "**Steps.** {}\n", experiment.steps);
    let _ = writeln!(out, "**Notes.** {}\n", experiment.notes);
    let _ = writeln!(out, "`make experiments EXPERIMENT={}` refreshes this page.\n", experiment.name);
    for run in &section.runs {
        let _ = writeln!(out, "- {run}");
    }
    for reason in &section.not_run {
        let _ = writeln!(out, "- {reason}");
    }
    out += "\nMedians (least to most) and, after the ×, the ratio to the raw disk of the same place.\n";
    for table in &section.tables {
        out += &one(experiment, table);
    }
    out
}

fn one(experiment: &Experiment, table: &Table) -> String {
    let mut out = format!("\n## {}, {}\n", table.metric, table.unit);
    for part in parts(table) {
        let _ = write!(out, "\n*{}*\n\n| |", part.title());
        part.columns.iter().for_each(|at| _ = write!(out, " {} |", table.columns[*at].system));
        out += "\n|---|";
        out += &"---|".repeat(part.columns.len());
        for (parameters, cells) in part.rows.iter().map(|row| &table.rows[*row]) {
            let _ = write!(out, "\n| {} |", words(parameters));
            part.columns.iter().for_each(|at| _ = write!(out, " {} |", text(&cells[*at])));
        }
        out.push('\n');
        for (figure, why) in remarks(experiment, table, &part) {
            let _ = write!(out, "\n{figure}: {why}\n");
        }
    }
    out
}

/// A cell in words.
pub fn text(cell: &Cell) -> String {
    match cell {
        Cell::Empty => String::new(),
        Cell::NotRun(reason) => format!("not run: {reason}"),
        Cell::Figure { summary, ratio } => {
            let mut out = number(summary.median);
            if summary.rounds > 1 {
                let _ = write!(out, " ({} to {})", number(summary.least), number(summary.most));
            }
            if let Some(ratio) = ratio {
                let _ = write!(out, " ×{}", number(*ratio));
            }
            out
        }
    }
}
