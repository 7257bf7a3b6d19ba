//! Bookmarks: what is kept of a snapshot so that what changed since then can be sent when it is gone.

use crate::failure::{Failure, Result};
use crate::options::Opt;
use crate::parse::Args;
use crate::report::plain;
use crate::session::{Session, no_volume};
use rowen_control::paths::{self, Target};
use rowen_control::protocol::{BookmarkReport, GroupReport, HexUuid, Request};
use rowen_control::uuids::lvm_text;
use serde_json::json;

/// The only argument: a group and a name in it.
fn only_one(args: &Args, what: &str) -> Result<(String, String)> {
    match &args.positionals[..] {
        [word] => match Target::parse(word) {
            Some(Target::Volume { group, volume }) => Ok((group, volume)),
            Some(_) => Err(Failure::usage(format!("Please specify one {what}: \"{word}\" is none."))),
            None => Err(Failure::usage(paths::refusal(word))),
        },
        _ => Err(Failure::usage(format!("Please specify one {what}."))),
    }
}

pub fn bookmark(session: &mut Session<'_>, args: &Args) -> Result {
    if args.has(Opt::ListBookmarks) {
        return list(session, args);
    }
    if args.has(Opt::RemoveBookmark) {
        let (group, name) = only_one(args, "bookmark, VG/NAME")?;
        session.change(&group, Request::RemoveBookmark { name: name.clone() })?;
        session.console.say(format!("Bookmark {group}/{name} is removed."));
        return Ok(());
    }
    let (group, snapshot) = only_one(args, "snapshot, VG/SNAPSHOT")?;
    let name = args.text(Opt::BookmarkName).unwrap_or(&snapshot).to_owned();
    let (uuid, created) = (session.backend.fresh_uuid(), session.backend.now());
    session.change(&group, Request::Bookmark { snapshot, name: name.clone(), uuid, created })?;
    session.console.say(format!("Bookmark {group}/{name} is made: its snapshot may be removed."));
    Ok(())
}

/// The volume that the bookmark's contents were a snapshot of.
fn origin<'r>(report: &'r GroupReport, bookmark: &BookmarkReport) -> Option<&'r str> {
    let found = report.volumes.iter().find(|volume| HexUuid(volume.uuid) == bookmark.of);
    found.map(|volume| volume.name.as_str())
}

fn list(session: &mut Session<'_>, args: &Args) -> Result {
    let [word] = &args.positionals[..] else { return Err(Failure::usage("Please specify one volume group.")) };
    let report = match Target::parse(word) {
        Some(Target::Group(group)) => session.report(&group)?,
        _ => return Err(Failure::usage(format!("\"{word}\" is no volume group."))),
    };
    let point = |bookmark: &BookmarkReport| lvm_text(bookmark.point_uuid.0);
    if args.has(Opt::Json) {
        let told = report.bookmarks.iter().map(|bookmark| {
            json!({
                "name": bookmark.name, "volume": origin(&report, bookmark), "point_uuid": point(bookmark),
                "made": bookmark.created, "ended": bookmark.has_ended,
            })
            .to_string()
        });
        let told: Vec<String> = told.collect();
        session.console.raw_out(&format!("{{\"bookmarks\":[{}]}}\n", told.join(",\n")));
        return Ok(());
    }
    let rows = report.bookmarks.iter().map(|bookmark| {
        let (of, made) = (origin(&report, bookmark).unwrap_or("-"), rowen_control::time::long(bookmark.created));
        let ended = if bookmark.has_ended { " (ended)" } else { "" };
        [bookmark.name.clone(), of.to_owned(), made, format!("{}{ended}", point(bookmark))]
    });
    let rows: Vec<[String; 4]> = rows.collect();
    session.console.raw_out(&plain::table(["BOOKMARK", "LV", "MADE", "POINT UUID"], &rows));
    Ok(())
}

/// The bookmark of this name, as what a stream goes on from.
pub fn find<'r>(report: &'r GroupReport, name: &str) -> Option<&'r BookmarkReport> {
    report.bookmarks.iter().find(|bookmark| bookmark.name == name)
}

/// Why a bookmark of this name, or a snapshot, is not there.
pub fn none(group: &str, name: &str) -> Failure {
    Failure::failed(format!("{}, and there is no bookmark of that name.", no_volume(group, name)))
}

#[cfg(test)]
#[path = "bookmark_test.rs"]
mod tests;
