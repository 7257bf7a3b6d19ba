//! The page: one file without anything from elsewhere, for a large screen, a phone and paper.

use super::headline::Headline;
use super::plot::{chart, lines, palette};
use super::{Part, Section, Table, markdown, parts, remarks, words};
use crate::catalogue::Experiment;
use crate::command::Result;
use crate::measurement::Origin;
use std::fmt::Write;

const STYLE: &str = include_str!("report.css");

/// Text as it may stand in HTML.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            c => out.push(c),
        }
    }
    out
}

pub fn page(sections: &[Section<'_>], headline: &Headline) -> Result<String> {
    let plots = palette::style();
    let mut out = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>Snapshots: published experiments, then and now</title><style>{STYLE}{plots}</style></head><body>\n\
         <h1>Snapshots: published experiments, then and now</h1>\n"
    );
    out += &headline.section()?;
    out += "<section id=\"about\"><h2>How to read this page</h2><p>Each experiment was run on the systems that its source \
         measured and on Rowen, in one run in which they took turns. Figures are medians of the rounds, with the least and the most; after the × stands the ratio to the raw disk <em>of \
         the same place</em>. LVM needs a kernel with device-mapper and runs in user-mode-linux, beside a raw disk and Rowen in \
         there: only figures of one place may be compared. <span class=\"modelled\">Modelled</span> figures are no measurements: \
         the I/O that a system sent to its disk was recorded and replayed on a calculated disk, in virtual time. \
         <span class=\"published\">Document</span> is what the source gave for its own machine. A plot has at most five lines; \
         the tables have all figures.</p>\n<nav><ul>";
    for section in sections {
        let experiment = section.experiment;
        let _ = write!(out, "<li><a href=\"#{}\">{}</a></li>", experiment.name, escape(experiment.title));
    }
    out += "</ul></nav></section>\n";
    for section in sections {
        out += &one(section)?;
    }
    Ok(out + "</body></html>\n")
}

fn one(section: &Section<'_>) -> Result<String> {
    let experiment = section.experiment;
    let mut out = format!("<section id=\"{}\"><h2>{}</h2>\n", experiment.name, escape(experiment.title));
    let source = match &experiment.source {
        Some(source) => format!("\u{201c}{}\u{201d}, {}, {}", source.title, source.author, source.year),
        None => "nobody publishes these figures".to_owned(),
    };
    out += "<dl>";
    let facts = [
        ("Source", source.as_str()),
        ("Question", experiment.question),
        ("Expected", experiment.expected),
        ("Steps", experiment.steps),
        ("Notes", experiment.notes),
    ];
    for (name, text) in facts {
        let _ = write!(out, "<dt>{name}</dt><dd>{}</dd>", escape(text));
    }
    let _ =
        write!(out, "<dt>Again</dt><dd><code>make experiments EXPERIMENT={}</code></dd></dl>\n<ul>", experiment.name);
    for line in section.runs.iter().chain(&section.not_run) {
        let _ = write!(out, "<li>{}</li>", escape(line));
    }
    out += "</ul>\n";
    for table in &section.tables {
        out += &figures(experiment, table)?;
    }
    Ok(out + "</section>\n")
}

fn figures(experiment: &Experiment, table: &Table) -> Result<String> {
    let mut out = format!("<h3>{}, {}</h3>\n<div class=\"plots\">", escape(&table.metric), escape(&table.unit));
    let parts = parts(table);
    for part in parts.iter().filter(|part| part.origin != Origin::Published) {
        let Some(plot) = lines::plot(table, experiment, part) else { continue };
        let Some(svg) = chart::draw(&plot)? else { continue };
        let _ = write!(out, "<figure class=\"{}\"><figcaption>{}", class(part), escape(&part.title()));
        if !plot.settings.is_empty() {
            let _ = write!(out, "<br><span class=\"settings\">{}</span>", escape(&plot.settings));
        }
        out += "</figcaption>";
        out += &svg;
        if plot.left_out > 0 {
            let lines = if plot.left_out == 1 { "line is" } else { "lines are" };
            let _ = write!(out, "<p class=\"rest\">{} more {lines} in the table only.</p>", plot.left_out);
        }
        out += "</figure>\n";
    }
    out += "</div>\n";
    parts.iter().for_each(|part| out += &cells(experiment, table, part));
    Ok(out)
}

fn class(part: &Part) -> &'static str {
    match part.origin {
        Origin::Modelled => "modelled",
        Origin::Published => "published",
        _ => "measured",
    }
}

fn cells(experiment: &Experiment, table: &Table, part: &Part) -> String {
    let (class, title) = (class(part), escape(&part.title()));
    let mut out = format!("<div class=\"scroll {class}\"><table><caption>{title}</caption><thead><tr><th></th>");
    part.columns.iter().for_each(|at| _ = write!(out, "<th>{}</th>", escape(&table.columns[*at].system)));
    out += "</tr></thead><tbody>";
    for (parameters, cells) in part.rows.iter().map(|row| &table.rows[*row]) {
        let _ = write!(out, "<tr><th>{}</th>", escape(&words(parameters)));
        part.columns.iter().for_each(|at| _ = write!(out, "<td>{}</td>", escape(&markdown::text(&cells[*at]))));
        out += "</tr>";
    }
    out += "</tbody></table></div>\n";
    for (figure, why) in remarks(experiment, table, part) {
        let _ = writeln!(out, "<p class=\"remark {class}\"><b>{}:</b> {}</p>", escape(&figure), escape(why));
    }
    out
}
