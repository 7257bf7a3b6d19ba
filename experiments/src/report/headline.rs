//! The first plot: what a snapshot costs. Each bar is the speed of writes with a snapshot as a share of the same system's speed
//! without it, in the same place and the same round.
//!
//! Promises: no figure is in it that is not in the lines; a system without figures is named, with the command that measures it.

use super::html::escape;
use super::plot::bars::{self, Panel, two};
use super::plot::palette;
use crate::command::Result;
use crate::measurement::{Measurement, Origin, Series};
use crate::model::hdd::BARRACUDA_ES;
use crate::stack::System;
use crate::stats::Summary;
use std::collections::BTreeMap;
use std::fmt::Write;

/// The file's name, beside the page.
pub const FILE: &str = "what-a-snapshot-costs.svg";
pub const TITLE: &str = "What a snapshot costs";
const BELOW: &str = "Speed of writes as a share of the speed without a snapshot: 1 means that the snapshot costs nothing. \
                     A line below a bar goes from the least to the most of several pairs.";

/// A figure's place in the lines: the metric, and one parameter that it has.
type Where = (&'static str, Option<(&'static str, &'static str)>);

/// What is done with the settings of one system, such as chunk sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Settings {
    /// The one that costs least is shown: each system at its best.
    Best,
    /// Those that differ in this parameter are rounds of one thing.
    Rounds(&'static str),
}

/// One panel's question.
struct Question {
    experiment: &'static str,
    origin: Origin,
    place: &'static str,
    head: &'static str,
    with: Where,
    without: Where,
    settings: Settings,
    systems: &'static [System],
    /// The command that measures it.
    command: &'static str,
}

const QUESTIONS: [Question; 2] = [
    Question {
        experiment: "byrne",
        origin: Origin::Modelled,
        place: BARRACUDA_ES.name,
        head: "A large file is overwritten. Recorded requests, replayed on a model of a 7200 rpm disk",
        with: ("write", Some(("snapshots", "1"))),
        without: ("write", Some(("snapshots", "0"))),
        settings: Settings::Best,
        systems: &[System::Classic, System::Thin, System::Rowen],
        command: "make experiments EXPERIMENT=byrne OPTIONS=\"--pass model\"",
    },
    Question {
        experiment: "aging",
        origin: Origin::Measured,
        place: "host",
        head: "4 KiB at random, first write after a snapshot against the next. Measured on the host",
        with: ("first pass", None),
        without: ("in place", None),
        settings: Settings::Rounds("days"),
        systems: &[System::Btrfs, System::Xfs, System::Rowen],
        command: "make experiments EXPERIMENT=aging OPTIONS=\"--pass host\"",
    },
];

/// One bar: the system, its share, and the settings that were chosen, in words.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    pub system: &'static str,
    pub share: Summary,
    pub settings: String,
}

/// What the plot shows, question by question.
pub struct Headline {
    panels: Vec<(&'static Question, Vec<Bar>)>,
}

/// The plot's figures, from all lines.
pub fn of(lines: &[Measurement]) -> Headline {
    let bars = |question: &'static Question| {
        let of = |system: &System| bar(lines, question, system.name());
        (question, question.systems.iter().filter_map(of).collect())
    };
    Headline { panels: QUESTIONS.iter().map(bars).collect() }
}

type Rounds = BTreeMap<BTreeMap<String, String>, BTreeMap<usize, f64>>;

/// Figures of a system by their other parameters and by round. Speeds that are not above zero were not measured.
fn figures(lines: &[Measurement], question: &Question, system: &str, at: Where) -> Rounds {
    let (metric, parameter) = at;
    let is_it = |series: &Series| {
        series.experiment == question.experiment
            && series.origin == question.origin
            && series.place == question.place
            && series.system == system
            && series.metric == metric
            && series.unit.ends_with("/s")
            && parameter.is_none_or(|(key, value)| series.parameters.get(key).is_some_and(|found| found == value))
    };
    let mut rounds = Rounds::new();
    for line in lines.iter().filter(|line| is_it(&line.series)) {
        let mut rest = line.series.parameters.clone();
        parameter.iter().for_each(|(key, _)| drop(rest.remove(*key)));
        if let Some(figure) = line.figure.filter(|figure| figure.is_finite() && *figure > 0.0) {
            rounds.entry(rest).or_default().insert(line.round, figure);
        }
    }
    rounds
}

/// A system's bar. None if no round has both figures.
fn bar(lines: &[Measurement], question: &Question, system: &'static str) -> Option<Bar> {
    let with = figures(lines, question, system, question.with);
    let without = figures(lines, question, system, question.without);
    let shares = with.into_iter().filter_map(|(settings, rounds)| {
        let base = without.get(&settings)?;
        let shares: Vec<f64> = rounds.iter().filter_map(|(round, with)| Some(with / base.get(round)?)).collect();
        Some((settings, shares))
    });
    match question.settings {
        Settings::Rounds(key) => {
            let (settings, shares): (Vec<_>, Vec<_>) = shares.filter(|(_, shares)| !shares.is_empty()).unzip();
            let mut values: Vec<String> = settings.iter().filter_map(|settings| settings.get(key).cloned()).collect();
            values.sort_by_key(|value| super::natural(value));
            let settings = format!("{key} {}", values.join(", "));
            Some(Bar { system, share: Summary::of(&shares.concat())?, settings })
        }
        Settings::Best => {
            let bars = shares.filter_map(|(settings, shares)| {
                Some(Bar { system, share: Summary::of(&shares)?, settings: super::words(&settings) })
            });
            bars.max_by(|a, b| a.share.median.total_cmp(&b.share.median))
        }
    }
}

impl Headline {
    /// The figures in a sentence, for those who do not see the plot.
    pub fn sentence(&self) -> String {
        let panel = |(question, bars): &(&Question, Vec<Bar>)| {
            let bars: Vec<String> =
                bars.iter().map(|bar| format!("{} {}", bar.system, two(bar.share.median))).collect();
            let kind = if question.origin == Origin::Modelled { "modelled" } else { "measured" };
            (!bars.is_empty()).then(|| format!("{} ({kind}, {})", bars.join(", "), question.place))
        };
        let panels: Vec<String> = self.panels.iter().filter_map(panel).collect();
        format!("Speed of writes with a snapshot as a share of without: {}", panels.join("; "))
    }

    fn svg(&self, title: &str) -> Result<Option<String>> {
        let panel = |(question, bars): &(&Question, Vec<Bar>)| Panel {
            head: question.head.to_owned(),
            bars: bars.iter().map(|bar| (bar.system.to_owned(), bar.share)).collect(),
        };
        let panels: Vec<Panel> = self.panels.iter().filter(|(_, bars)| !bars.is_empty()).map(panel).collect();
        bars::draw(title, BELOW, &self.sentence(), &panels)
    }

    /// The plot as a file that stands alone. None if there are no figures.
    pub fn file(&self) -> Result<Option<String>> {
        let Some(svg) = self.svg(TITLE)? else { return Ok(None) };
        let opening = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"520\"";
        let (first, shapes) = svg.split_once('>').ok_or("a plot without a beginning")?;
        let style = palette::style();
        Ok(Some(format!("{}>\n<style>{style}</style>{shapes}", first.replacen("<svg", opening, 1))))
    }

    /// The plot with what must be known to read it, as a part of the page.
    pub fn section(&self) -> Result<String> {
        let mut out = format!("<section id=\"headline\"><h2>{TITLE}</h2>\n");
        match self.svg("")? {
            Some(svg) => _ = writeln!(out, "<figure class=\"headline\">{svg}</figure>"),
            None => out += "<p>There are no figures for this plot.</p>\n",
        }
        out += "<p>Each bar is a share of the same system's own speed in the same place. Compare bars of one panel only.</p>\n<ul>";
        for (question, bars) in &self.panels {
            let _ = write!(out, "<li>{}. ", escape(question.head));
            out += &bars.iter().map(|bar| described(question, bar)).collect::<Vec<_>>().join("; ");
            let _ = write!(out, ". <a href=\"#{0}\">All figures of {0}</a>.", question.experiment);
            for system in question.systems.iter().filter(|system| bars.iter().all(|bar| bar.system != system.name())) {
                let (system, command) = (system.name(), escape(question.command));
                let _ = write!(out, " There is no figure of {system}: <code>{command}</code> measures it.");
            }
            out += "</li>";
        }
        Ok(out + "</ul></section>\n")
    }
}

/// A bar in words.
fn described(question: &Question, bar: &Bar) -> String {
    let Bar { system, share, settings } = bar;
    let (settings, figure) = (escape(settings), two(share.median));
    let spread = format!("{} to {}", two(share.least), two(share.most));
    match question.settings {
        Settings::Rounds(_) => format!("{system} {figure} ({spread} in {} pairs: {settings})", share.rounds),
        Settings::Best if share.rounds > 1 => format!("{system} {figure} ({spread}) with {settings}, its best"),
        Settings::Best => format!("{system} {figure} with {settings}, its best"),
    }
}

#[cfg(test)]
mod tests;
