//! The lines of all runs in one file, so that experiments can be run one after another and read together.
//!
//! Promises: a part that is measured again takes the place of its own lines and of no others; one that did not come to its end
//! does not take the place of one that did; the file is whole at any moment.

use crate::catalogue;
use crate::command::{self, Result};
use crate::measurement::{Measurement, Origin, Run, read_lines};
use crate::runner::Pass;
use std::path::{Path, PathBuf};

/// Stands for a system in the line that says why a part did not come to its end.
pub const ALL_SYSTEMS: &str = "all systems";

/// See the module.
pub struct Book {
    path: PathBuf,
    lines: Vec<Measurement>,
}

/// What of the lines a part has written: a pass of an experiment, or the document's own figures.
fn is_of(line: &Measurement, experiment: &str, pass: Option<Pass>) -> bool {
    let of_pass = match line.series.origin {
        Origin::Published => None,
        _ => Pass::ALL.into_iter().find(|pass| pass.places().contains(&line.series.place.as_str())),
    };
    line.series.experiment == experiment && of_pass == pass
}

/// Whether these lines of a part say that it was interrupted or failed. One that ran out of time is over.
fn is_cut_short<'a>(mut lines: impl Iterator<Item = &'a Measurement>) -> bool {
    lines.any(|line| {
        let reason = line.reason.as_deref().unwrap_or_default();
        line.series.system == ALL_SYSTEMS && !command::is_too_long(reason)
    })
}

impl Book {
    /// The book in this file; a new one if the file does not exist.
    pub fn open(path: &Path) -> Result<Book> {
        let lines = if path.exists() { read_lines(path)? } else { Vec::new() };
        Ok(Book { path: path.to_owned(), lines })
    }

    pub fn lines(&self) -> &[Measurement] {
        &self.lines
    }

    fn part<'a>(&'a self, experiment: &'a str, pass: Option<Pass>) -> impl Iterator<Item = &'a Measurement> {
        self.lines.iter().filter(move |line| is_of(line, experiment, pass))
    }

    /// Whether such a run has been to the end of this part already.
    pub fn has(&self, experiment: &str, pass: Pass, run: &Run) -> bool {
        let part = || self.part(experiment, Some(pass));
        part().next().is_some() && part().all(|line| line.run.is_like(run)) && !is_cut_short(part())
    }

    /// Enters a part's lines. False if what is there stays, because it is whole and these are not.
    pub fn enter(&mut self, experiment: &str, pass: Option<Pass>, new: Vec<Measurement>) -> Result<bool> {
        let is_whole = self.part(experiment, pass).next().is_some() && !is_cut_short(self.part(experiment, pass));
        if new.is_empty() || is_whole && is_cut_short(new.iter()) {
            return Ok(false);
        }
        self.lines.retain(|line| !is_of(line, experiment, pass));
        self.lines.extend(new);
        let place = |line: &Measurement| {
            let experiment = catalogue::ALL.iter().position(|known| known.name == line.series.experiment);
            let pass = Pass::ALL.into_iter().position(|pass| is_of(line, &line.series.experiment, Some(pass)));
            (experiment, pass)
        };
        self.lines.sort_by_key(place);
        self.write()?;
        Ok(true)
    }

    fn write(&self) -> Result {
        let mut text = String::new();
        for line in &self.lines {
            text += &serde_json::to_string(line).map_err(|e| format!("a line cannot be written: {e}"))?;
            text.push('\n');
        }
        let new = self.path.with_extension("new");
        std::fs::write(&new, text)
            .and_then(|()| std::fs::rename(&new, &self.path))
            .map_err(|e| format!("cannot write {}: {e}", self.path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measurement::{Series, parameters};
    use crate::runner::{HOST, INSIDE};

    fn line(experiment: &str, place: &str, figure: Option<f64>, reason: Option<&str>) -> Measurement {
        let series = Series {
            experiment: experiment.into(),
            origin: if place == "document" { Origin::Published } else { Origin::Measured },
            metric: "write".into(),
            unit: "s".into(),
            system: if reason.is_some() { ALL_SYSTEMS } else { "raw" }.into(),
            place: place.into(),
            parameters: parameters(&[]),
        };
        let (question, reason) = (String::new(), reason.map(str::to_owned));
        Measurement { question, series, figure, reason, round: 0, run: Run::default() }
    }

    fn figures(book: &Book) -> Vec<(&str, &str, Option<f64>)> {
        let lines = book.lines().iter();
        lines.map(|l| (l.series.experiment.as_str(), l.series.place.as_str(), l.figure)).collect()
    }

    #[test]
    fn a_part_takes_the_place_of_itself_alone() {
        let path = std::env::temp_dir().join(format!("rowen-book-{}", std::process::id()));
        let mut book = Book::open(&path).unwrap();
        let [host, inside] = [Pass::Host, Pass::Inside].map(Some);
        let enter = |book: &mut Book, name: &str, place, pass, figure| {
            book.enter(name, pass, vec![line(name, place, Some(figure), None)]).unwrap()
        };
        assert!(enter(&mut book, "hp-ux", HOST, host, 1.0));
        assert!(enter(&mut book, "van-dok", INSIDE, inside, 2.0));
        assert!(enter(&mut book, "van-dok", HOST, host, 3.0));
        assert!(enter(&mut book, "van-dok", "document", None, 4.0));
        assert!(enter(&mut book, "van-dok", INSIDE, inside, 5.0));
        let mut expected = vec![
            ("van-dok", "document", Some(4.0)),
            ("van-dok", HOST, Some(3.0)),
            ("van-dok", INSIDE, Some(5.0)),
            ("hp-ux", HOST, Some(1.0)),
        ];
        assert_eq!(figures(&book), expected);

        // What was cut short stands where nothing better is.
        let cut = |name, place| vec![line(name, place, Some(9.0), None), line(name, place, None, Some("interrupted"))];
        assert!(!book.enter("hp-ux", host, cut("hp-ux", HOST)).unwrap());
        assert!(book.enter("hp-ux", inside, cut("hp-ux", INSIDE)).unwrap());
        let late = vec![line("van-dok", HOST, None, Some("took longer than 9 s"))];
        assert!(book.enter("van-dok", host, late).unwrap());
        expected[1].2 = None;
        expected.extend([("hp-ux", INSIDE, Some(9.0)), ("hp-ux", INSIDE, None)]);
        let again = Book::open(&path).unwrap();
        assert_eq!(figures(&again), expected);
        let run = Run::default();
        assert!(again.has("hp-ux", Pass::Host, &run) && again.has("van-dok", Pass::Host, &run));
        assert!(!again.has("hp-ux", Pass::Inside, &run) && !again.has("hp-ux", Pass::Model, &run));
        assert!(!again.has("hp-ux", Pass::Host, &Run { revision: "later".into(), ..run }));
        std::fs::remove_file(&path).unwrap();
    }
}
