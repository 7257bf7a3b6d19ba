//! What `rowen send` sends: snapshots and their base snapshots, by the identities of their contents.

use crate::commands::bookmark;
use crate::failure::{Failure, Result};
use crate::options::Opt;
use crate::parse::Args;
use crate::session::{Session, no_volume, unless_exported};
use rowen_control::paths::{self, Target};
use rowen_control::protocol::{GroupReport, HexUuid, VolumeReport};
use rowen_control::uuids::lvm_text;
use rowen_engine::group::BOOKMARK;
use rowen_engine::units::Uuid;
use rowen_transfer::{Base, MAX_VOLUMES, MarkPlace, Token};
use std::collections::HashSet;

/// A snapshot, or a bookmark by its full name, and the identity of its contents.
pub struct Point {
    pub name: String,
    /// Its name in the stream: the name that it had when it was first sent.
    pub sent_as: String,
    pub point: Uuid,
}

/// What the command sends.
pub struct Chosen {
    /// The group with these volumes and their origins.
    pub report: GroupReport,
    /// Snapshots, each with its base.
    pub pairs: Vec<(Option<Point>, Point)>,
    /// The mark from which the stream continues.
    pub continues: Option<MarkPlace>,
}

pub fn chosen(session: &mut Session<'_>, args: &Args) -> Result<Chosen> {
    if session.console.shows_output() {
        return Err(Failure::usage("A stream is not written to a terminal: send it to a file or to a pipe."));
    }
    if let Some(word) = args.text(Opt::Resume) {
        return resumed(session, args, word);
    }
    if let Some(suffix) = args.text(Opt::Suffix) {
        return of_group(session, args, suffix);
    }
    let [word] = &args.positionals[..] else {
        return Err(Failure::usage("Please specify one snapshot: VG/SNAPSHOT."));
    };
    let (group, name) = match Target::parse(word) {
        Some(Target::Volume { group, volume }) => (group, volume),
        Some(_) => {
            return Err(Failure::usage(format!(
                "Please specify a snapshot, or a volume group with --suffix: \"{word}\" is none."
            )));
        }
        None => return Err(Failure::usage(paths::refusal(word))),
    };
    let base = args.text(Opt::SendFrom).map(|word| base_of(&group, word)).transpose()?;
    let names = [name.clone()].into_iter().chain(base.clone()).collect();
    let report = session.report_of(&group, names)?;
    let new = point(&report, &name)?;
    let old = base.map(|base| base_point(&report, &base)).transpose()?;
    Ok(Chosen { pairs: vec![(old, new)], report, continues: None })
}

/// The base of a stream, which is in the same group.
fn base_of(group: &str, word: &str) -> Result<String> {
    match Target::parse(word) {
        Some(Target::Volume { group: of, volume }) if of == group => Ok(volume),
        Some(Target::Group(name)) => Ok(name),
        Some(Target::Volume { .. }) => {
            Err(Failure::usage(format!("\"{word}\" is not in volume group \"{group}\", and has no common snapshot.")))
        }
        Some(Target::Tag(_)) | None => Err(Failure::usage(paths::refusal(word))),
    }
}

/// All snapshots of a group that one `rowen snapshot --suffix` made, each with its base, an older snapshot of the same
/// origin.
fn of_group(session: &mut Session<'_>, args: &Args, suffix: &str) -> Result<Chosen> {
    let group = match &args.positionals[..] {
        [word] => match Target::parse(word) {
            Some(Target::Group(group)) => group,
            _ => return Err(Failure::usage("With --suffix please specify a volume group.")),
        },
        _ => return Err(Failure::usage("With --suffix please specify one volume group.")),
    };
    let report = unless_exported(session.report(&group)?)?;
    let name_of = |origin: &str, suffix: &str| format!("{origin}-{suffix}");
    let is_member =
        |volume: &&VolumeReport| volume.origin.as_ref().is_some_and(|origin| volume.name == name_of(origin, suffix));
    let members: Vec<&VolumeReport> = report.volumes.iter().filter(is_member).collect();
    if members.is_empty() || members.len() > MAX_VOLUMES {
        return Err(Failure::failed(match members.len() {
            0 => format!("Volume group \"{group}\" has no snapshot that is called LV-{suffix}."),
            many => format!(
                "Volume group \"{group}\" has {many} snapshots called LV-{suffix}: a stream has at most {MAX_VOLUMES}."
            ),
        }));
    }
    let moments: HashSet<Option<u64>> = members.iter().map(|volume| volume.moment).collect();
    let mut pairs = Vec::new();
    for volume in &members {
        let origin = volume.origin.as_deref().unwrap_or_default();
        let base = args.text(Opt::SendFrom).map(|base| name_of(origin, base));
        let old = match base {
            Some(base) if report.volume(&base).is_some() || bookmark::find(&report, &base).is_some() => {
                Some(base_point(&report, &base)?)
            }
            Some(base) => {
                session.console.complain(format!("{group}/{origin} has no {base}: all of {} is sent.", volume.name));
                None
            }
            None => None,
        };
        pairs.push((old, point(&report, &volume.name)?));
    }
    if moments.len() > 1 {
        return Err(Failure::failed(format!(
            "The snapshots LV-{suffix} of volume group \"{group}\" were not taken at one moment: \"rowen snapshot {group} --suffix NAME\" \
             takes such ones."
        )));
    }
    if args.has(Opt::SendFrom) && pairs.iter().all(|(old, _)| old.is_none()) {
        return Err(Failure::failed(format!(
            "None of them has a snapshot to go on from: give another one than {}.",
            args.text(Opt::SendFrom).unwrap_or_default()
        )));
    }
    Ok(Chosen { pairs, report, continues: None })
}

/// The contents of a token: the word is the token or the path of its file.
fn token(session: &mut Session<'_>, word: &str) -> Result<Token> {
    let text = match Token::of_word(word.trim()) {
        Ok(token) => return Ok(token),
        Err(_) if word.contains('/') => session.backend.read_text(word)?,
        // A file in the working directory, perhaps.
        Err(_) => session.backend.read_text(word).unwrap_or_else(|_| word.to_owned()),
    };
    Token::of_word(text.trim()).map_err(|error| {
        Failure::usage(format!(
            "Cannot go on with a stream: {error}. \"rowen receive --token VG/LV\" prints the token."
        ))
    })
}

/// The same snapshots again, found by their identities. Their names may have changed.
fn resumed(session: &mut Session<'_>, args: &Args, word: &str) -> Result<Chosen> {
    if args.has(Opt::SendFrom) || args.has(Opt::Suffix) {
        return Err(Failure::usage("With --resume the token says what is sent: give no other snapshot."));
    }
    let token = token(session, word)?;
    let group = match &args.positionals[..] {
        [] => token.group_name.clone(),
        [word] => match Target::parse(word) {
            Some(Target::Group(group)) => group,
            _ => return Err(Failure::usage("With --resume give the volume group alone, if it has another name now.")),
        },
        _ => return Err(Failure::usage("With --resume give one volume group at most.")),
    };
    let report = unless_exported(session.report(&group)?)?;
    let find = |point: [u8; 16], name: &str| {
        let (point, is_named) = (Uuid(point), |volume: &&VolumeReport| volume.name == name);
        let has = |volume: &&VolumeReport| volume.point_uuid == Some(HexUuid(point)) && volume.origin.is_some();
        let found = report.volumes.iter().find(|volume| has(volume) && is_named(volume));
        let found = found.or_else(|| report.volumes.iter().find(has));
        let found = found.map(|volume| Point { name: volume.name.clone(), sent_as: name.to_owned(), point });
        found.ok_or_else(|| {
            Failure::failed(format!(
                "Volume group \"{group}\" has no snapshot any more that is what {name} ({}) was: the stream cannot go on. \
                 Give up what was received (\"rowen receive --abort VG/LV\" there), and send another snapshot.",
                lvm_text(point)
            ))
        })
    };
    let pairs = token.volumes.iter().map(|volume| {
        let of_bookmark = |base: &Base| {
            let mut found = report.bookmarks.iter().filter(|bookmark| !bookmark.has_ended);
            let found = found.find(|bookmark| bookmark.point_uuid == HexUuid(Uuid(base.point)))?;
            Some(Point {
                name: format!("{BOOKMARK}{}", found.name),
                sent_as: base.name.clone(),
                point: Uuid(base.point),
            })
        };
        let old = volume
            .base
            .as_ref()
            .map(|base| find(base.point, &base.name).or_else(|failure| of_bookmark(base).ok_or(failure)));
        let old = old.transpose()?;
        Ok((old, find(volume.point, &volume.snapshot)?))
    });
    let pairs = pairs.collect::<Result<Vec<_>>>()?;
    Ok(Chosen { pairs, report, continues: Some(token.place) })
}

pub fn volume<'r>(report: &'r GroupReport, name: &str) -> Result<&'r VolumeReport> {
    report.volume(name).ok_or_else(|| Failure::failed(no_volume(&report.name, name)))
}

/// The base of a stream: a snapshot, or else a bookmark of that name.
fn base_point(report: &GroupReport, name: &str) -> Result<Point> {
    if report.volume(name).is_some() {
        return point(report, name);
    }
    let found = bookmark::find(report, name).ok_or_else(|| bookmark::none(&report.name, name))?;
    if found.has_ended {
        let (group, name) = (&report.name, name);
        return Err(Failure::failed(format!(
            "The bookmark {group}/{name} has ended: all that came from its snapshot is gone, or was reverted to before it. Send from \
             another one, or all."
        )));
    }
    Ok(Point { name: format!("{BOOKMARK}{name}"), sent_as: name.to_owned(), point: found.point_uuid.0 })
}

/// A snapshot that is sent.
pub fn point(report: &GroupReport, name: &str) -> Result<Point> {
    let (group, volume) = (&report.name, volume(report, name)?);
    let fail = |why: String| {
        let advice = format!("Take a snapshot of it, and send that: \"lvcreate -s -n NAME {group}/{name}\".");
        Err(Failure::failed(format!("{why} {advice}")))
    };
    match (volume.point_uuid, &volume.origin) {
        (Some(HexUuid(point)), Some(_)) => Ok(Point { name: name.to_owned(), sent_as: name.to_owned(), point }),
        (_, None) => fail(format!("Logical volume {group}/{name} is no snapshot, so it can change while it is sent.")),
        (None, Some(_)) => fail(format!(
            "Logical volume {group}/{name} is not what it was when it was made: it was written to, or reverted."
        )),
    }
}
