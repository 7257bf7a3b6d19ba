//! Which blocks differ between two volumes of a family, or which ones a volume has, as a list that programs read.

use crate::failure::{Failure, Result};
use crate::options::Opt;
use crate::parse::Args;
use crate::session::{Session, unexpected};
use rowen_control::paths::{self, Target};
use rowen_control::protocol::{DiffPage, DiffPlace, DiffRange, Outcome, Request};
use rowen_control::units::Units;
use rowen_engine::units::BLOCK_SIZE;
use serde_json::json;
use std::io;

/// Bytes in a sector of thin_delta's list.
const SECTOR: u64 = 512;
/// The first bytes of a binary list.
const MAGIC: &[u8; 8] = b"RwDiff01";
/// In a record's length: a range that reads as zeros, and the last record.
const ZEROS: u64 = 1;
const END: u64 = 2;

/// What is compared. Names are as the group has them.
struct Wanted {
    group: String,
    old: Option<String>,
    new: String,
}

/// The ways to write a list.
#[derive(Clone, Copy, PartialEq)]
enum Form {
    Table,
    Json,
    Binary,
    ThinDelta,
}

/// A list as it is written, a range at a time.
struct List {
    form: Form,
    is_summary: bool,
    units: Units,
    wanted: Wanted,
    /// The new volume's size, and what a list of thin_delta calls the volumes.
    blocks: u64,
    ids: [u64; 2],
    old_blocks: Option<u64>,
    /// Not written yet: the next page may have more of it.
    last: Option<DiffRange>,
    ranges: u64,
    data_blocks: u64,
    zero_blocks: u64,
    /// The first block after the last range that was written.
    done: u64,
}

pub fn diff(session: &mut Session<'_>, args: &Args) -> Result {
    let form = form(args)?;
    let wanted = wanted(args)?;
    let mut page = ask(session, &wanted, None)?;
    let mut list = List::new(form, args, wanted, &page);
    let is_read = list.begin(session).and_then(|()| list.add(session, &page));
    if !go_on(is_read)? {
        return Ok(());
    }
    while let Some(place) = page.next() {
        page = ask(session, &list.wanted, Some(place))?;
        if !go_on(list.add(session, &page))? {
            return Ok(());
        }
    }
    let ended = list.end(session).and_then(|()| session.console.finish());
    go_on(ended).map(drop)
}

/// Whether somebody still reads. A list that could not be written whole is a failure.
fn go_on(written: io::Result<()>) -> Result<bool> {
    match written {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => {
            Err(Failure::failed(format!("Cannot write the list: {error}. What was written of it is not whole.")))
        }
    }
}

fn form(args: &Args) -> Result<Form> {
    let named = match args.text(Opt::ListFormat) {
        None => None,
        Some("json") => Some(Form::Json),
        Some("binary") => Some(Form::Binary),
        Some("thin-delta") => Some(Form::ThinDelta),
        Some(_) => Some(Form::Table),
    };
    match (named, args.has(Opt::Json)) {
        (Some(form), true) if form != Form::Json => {
            Err(Failure::usage("--json is the same as --format json: please choose one form."))
        }
        (_, true) => Ok(Form::Json),
        (Some(Form::Binary | Form::ThinDelta), false) if args.has(Opt::Summary) => {
            Err(Failure::usage("--summary has the forms table and json only."))
        }
        (Some(Form::ThinDelta), false) if args.has(Opt::Allocated) => {
            Err(Failure::usage("--format thin-delta compares two volumes; --allocated is about one."))
        }
        (named, false) => Ok(named.unwrap_or(Form::Table)),
    }
}

fn wanted(args: &Args) -> Result<Wanted> {
    let volume = |word: &String| match Target::parse(word) {
        Some(Target::Volume { group, volume }) => Ok((group, volume)),
        Some(_) => {
            Err(Failure::usage(format!("Please specify a logical volume path: \"{word}\" has no volume group.")))
        }
        None => Err(Failure::usage(paths::refusal(word))),
    };
    match (&args.positionals[..], args.has(Opt::Allocated)) {
        ([word], true) => volume(word).map(|(group, new)| Wanted { group, old: None, new }),
        (_, true) => Err(Failure::usage("Please specify one logical volume with --allocated.")),
        ([old, new], false) => {
            let (group, old) = volume(old)?;
            let new = match Target::parse(new) {
                Some(Target::Volume { group: of, volume }) if of == group => volume,
                Some(Target::Volume { .. }) => {
                    let message =
                        format!("\"{new}\" is not in volume group \"{group}\": volumes of one group can be compared.");
                    return Err(Failure::usage(message));
                }
                Some(Target::Group(name)) => name,
                Some(Target::Tag(_)) | None => return Err(Failure::usage(paths::refusal(new))),
            };
            Ok(Wanted { group, old: Some(old), new })
        }
        _ => Err(Failure::usage("Please specify two logical volumes, the older one first, or one with --allocated.")),
    }
}

fn ask(session: &mut Session<'_>, wanted: &Wanted, from: Option<DiffPlace>) -> Result<DiffPage> {
    let request = Request::Diff { old: wanted.old.clone(), new: wanted.new.clone(), from };
    match session.ask(&wanted.group, request)? {
        Outcome::Diff(page) => Ok(*page),
        other => Err(unexpected(&wanted.group, &other)),
    }
}

impl List {
    fn new(form: Form, args: &Args, wanted: Wanted, page: &DiffPage) -> List {
        List {
            form,
            is_summary: args.has(Opt::Summary),
            units: args.units(),
            blocks: page.new.blocks,
            ids: [page.old.map_or(0, |old| old.id), page.new.id],
            old_blocks: page.old.map(|old| old.blocks),
            wanted,
            last: None,
            ranges: 0,
            data_blocks: 0,
            zero_blocks: 0,
            done: 0,
        }
    }

    /// What is written before the first range.
    fn begin(&mut self, session: &mut Session<'_>) -> io::Result<()> {
        let bytes = match self.form {
            _ if self.is_summary => Vec::new(),
            Form::Table => row("OFFSET", "LENGTH", "KIND").into_bytes(),
            Form::Json => {
                let old = self.wanted.old.as_ref();
                let head = json!({
                    "group": self.wanted.group,
                    "old": old,
                    "new": self.wanted.new,
                    "old_size": self.old_blocks.map(|blocks| blocks * BLOCK_SIZE),
                    "size": self.blocks * BLOCK_SIZE,
                });
                // The ranges go into this object, a line each, so that none has to wait for all.
                let head = head.to_string();
                format!("{},\"ranges\":[", head.trim_end_matches('}')).into_bytes()
            }
            Form::Binary => record(u64::from_le_bytes(*MAGIC), self.blocks * BLOCK_SIZE).to_vec(),
            Form::ThinDelta => format!(
                "<superblock uuid=\"\" time=\"0\" transaction=\"0\" data_block_size=\"{}\" nr_data_blocks=\"{}\">\n  \
                 <diff left=\"{}\" right=\"{}\">\n",
                BLOCK_SIZE / SECTOR,
                self.blocks,
                self.ids[0],
                self.ids[1]
            )
            .into_bytes(),
        };
        session.console.put(&bytes)
    }

    /// Writes the ranges of a page, but for the last one: the next page may have more of it.
    fn add(&mut self, session: &mut Session<'_>, page: &DiffPage) -> io::Result<()> {
        let mut text = Vec::new();
        for range in &page.ranges {
            match &mut self.last {
                Some(last) if last.is_data == range.is_data && last.start_block + last.blocks == range.start_block => {
                    last.blocks += range.blocks;
                }
                last => {
                    if let Some(whole) = last.replace(*range) {
                        self.write(&mut text, whole);
                    }
                }
            }
        }
        session.console.put(&text)
    }

    fn write(&mut self, text: &mut Vec<u8>, range: DiffRange) {
        let (offset, length) = (range.start_block * BLOCK_SIZE, range.blocks * BLOCK_SIZE);
        let is_first = self.ranges == 0;
        self.ranges += 1;
        *(if range.is_data { &mut self.data_blocks } else { &mut self.zero_blocks }) += range.blocks;
        match self.form {
            _ if self.is_summary => {}
            Form::Table => {
                let kind = if range.is_data { "data" } else { "zero" };
                text.extend(row(&offset.to_string(), &length.to_string(), kind).into_bytes());
            }
            Form::Json => {
                let (comma, is_data) = (if is_first { "" } else { "," }, range.is_data);
                let range = format!(
                    "{comma}\n{{\"start\":{offset},\"length\":{length},\"data\":{is_data},\"zero\":{}}}",
                    !is_data
                );
                text.extend(range.into_bytes());
            }
            Form::Binary => text.extend(record(offset, length | if range.is_data { 0 } else { ZEROS })),
            Form::ThinDelta => {
                self.same(text, range.start_block);
                let name = if range.is_data { "different" } else { "left_only" };
                text.extend(element(name, range.start_block, range.blocks));
            }
        }
        self.done = range.start_block + range.blocks;
    }

    /// In thin_delta's list: what is equal up to a block.
    fn same(&self, text: &mut Vec<u8>, until: u64) {
        if self.done < until {
            text.extend(element("same", self.done, until - self.done));
        }
    }

    /// What is written after the last range.
    fn end(&mut self, session: &mut Session<'_>) -> io::Result<()> {
        let mut text = Vec::new();
        if let Some(last) = self.last.take() {
            self.write(&mut text, last);
        }
        let (data, zeros) = (self.data_blocks * BLOCK_SIZE, self.zero_blocks * BLOCK_SIZE);
        let sums = json!({ "ranges": self.ranges, "data_bytes": data, "zero_bytes": zeros });
        match self.form {
            Form::Table => text.extend(format!("  {}\n", self.sum()).into_bytes()),
            Form::Json if self.is_summary => text.extend(format!("{sums}\n").into_bytes()),
            Form::Json => text.extend(format!("\n],\"summary\":{sums}}}\n").into_bytes()),
            Form::Binary => text.extend(record(self.blocks * BLOCK_SIZE, END)),
            Form::ThinDelta => {
                self.same(&mut text, self.blocks);
                text.extend(b"  </diff>\n</superblock>\n");
            }
        }
        session.console.put(&text)
    }

    fn sum(&self) -> String {
        let size = |blocks: u64| self.units.show(blocks * BLOCK_SIZE, true).trim_end().to_owned();
        let (group, new, ranges) = (&self.wanted.group, &self.wanted.new, self.ranges);
        let what = match &self.wanted.old {
            Some(old) => format!("{group}/{new} differs from {group}/{old}"),
            None => format!("{group}/{new} has blocks"),
        };
        let plural = if ranges == 1 { "range" } else { "ranges" };
        let (data, zeros, all) = (size(self.data_blocks), size(self.zero_blocks), size(self.blocks));
        format!("{what} in {ranges} {plural}: {data} of data, {zeros} of zeros, of {all}.")
    }
}

fn row(offset: &str, length: &str, kind: &str) -> String {
    format!("  {offset:>18} {length:>18} {kind}\n")
}

fn record(first: u64, second: u64) -> [u8; 16] {
    let mut record = [0; 16];
    record[..8].copy_from_slice(&first.to_le_bytes());
    record[8..].copy_from_slice(&second.to_le_bytes());
    record
}

fn element(name: &str, begin: u64, length: u64) -> Vec<u8> {
    format!("    <{name} begin=\"{begin}\" length=\"{length}\"/>\n").into_bytes()
}

#[cfg(test)]
#[path = "diff_test.rs"]
mod tests;
