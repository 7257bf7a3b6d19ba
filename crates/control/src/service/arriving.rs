//! What is being received: what is known of it, and where that is kept.
//!
//! Each volume that is being received has tags that say what it is to become. The first one's tags also say how far the stream is. So a
//! receive goes on after the server's death and after a power cut.

use super::failure::{Failure, Result};
use super::state::Service;
use crate::protocol::{Attempt, Base, ErrorKind, HexUuid, Mark, Outcome, Receive, Unfinished, UnfinishedVolume};
use rowen_engine::group::{VolumeInfo, VolumeState, is_being_received};
use rowen_engine::planted;
use rowen_engine::units::Uuid;
use std::collections::BTreeMap;

/// What a volume that is being received is to become.
#[derive(Clone, Debug)]
pub struct Kept {
    /// The stream that began it: equal for all volumes of a receive.
    pub receive: Uuid,
    /// Its number, and the number of volumes.
    pub number: u32,
    pub volumes: u32,
    pub target: String,
    pub snapshot: String,
    /// What the sender calls the snapshot.
    pub source: String,
    pub point: Uuid,
    pub blocks: u64,
    pub base: Option<Base>,
    /// The target's size when the receive began.
    pub base_blocks: u64,
}

/// How far a receive is.
#[derive(Clone, Debug)]
pub struct Progress {
    /// The stream that it continues, and the number of its frames.
    pub stream: Uuid,
    pub frames: u64,
    /// The last mark that is here, which may be of a stream before.
    pub mark: Option<Mark>,
    /// What the sender calls its group.
    pub group: String,
}

/// A receive that has not ended: its volumes in the order of the stream.
pub struct Arriving {
    pub volumes: Vec<(VolumeInfo, Kept)>,
    pub progress: Progress,
}

/// Looks up what tags say.
struct Tags<'a>(&'a [String]);

impl<'a> Tags<'a> {
    fn text(&self, key: &str) -> Option<&'a str> {
        self.0.iter().find_map(|tag| tag.strip_prefix(key)?.strip_prefix('='))
    }

    fn uuid(&self, key: &str) -> Option<Uuid> {
        u128::from_str_radix(self.text(key)?, 16).ok().map(|number| Uuid(number.to_be_bytes()))
    }

    fn number<T: std::str::FromStr>(&self, key: &str) -> Option<T> {
        self.text(key)?.parse().ok()
    }
}

impl Kept {
    pub fn tags(&self) -> Vec<String> {
        let mut tags = vec![
            format!("receive={}", self.receive),
            format!("number={}", self.number),
            format!("volumes={}", self.volumes),
            format!("target={}", self.target),
            format!("snapshot={}", self.snapshot),
            format!("source={}", self.source),
            format!("point={}", self.point),
            format!("blocks={}", self.blocks),
            format!("base_blocks={}", self.base_blocks),
        ];
        if let Some(Base { point, name }) = &self.base {
            tags.push(format!("base={point}"));
            tags.push(format!("base_name={name}"));
        }
        tags
    }

    fn of(tags: &[String]) -> Option<Kept> {
        let tags = Tags(tags);
        let base = tags.uuid("base").zip(tags.text("base_name"));
        Some(Kept {
            receive: tags.uuid("receive")?,
            number: tags.number("number")?,
            volumes: tags.number("volumes")?,
            target: tags.text("target")?.to_owned(),
            snapshot: tags.text("snapshot")?.to_owned(),
            source: tags.text("source")?.to_owned(),
            point: tags.uuid("point")?,
            blocks: tags.number("blocks")?,
            base: base.map(|(point, name)| Base { point, name: name.to_owned() }),
            base_blocks: tags.number("base_blocks")?,
        })
    }
}

impl Progress {
    pub fn of_new(wanted: &Receive) -> Progress {
        Progress { stream: wanted.stream, frames: 0, mark: None, group: wanted.group.clone() }
    }

    pub fn tags(&self) -> Vec<String> {
        let mut tags =
            vec![format!("stream={}", self.stream), format!("frames={}", self.frames), format!("group={}", self.group)];
        if let Some(mark) = &self.mark {
            let halves = mark.hash.as_chunks::<16>().0.iter().map(|half| Uuid(*half).to_string());
            tags.push(format!("mark={}", mark.stream));
            tags.push(format!("mark_volume={}", mark.volume));
            tags.push(format!("mark_block={}", mark.block));
            tags.push(format!("mark_hash={}", halves.collect::<String>()));
        }
        tags
    }

    fn of(tags: &[String]) -> Option<Progress> {
        let tags = Tags(tags);
        let mark = tags.uuid("mark").and_then(|stream| {
            let digits = tags.text("mark_hash").filter(|digits| digits.len() == 64 && digits.is_ascii())?;
            let mut hash = [0; 32];
            for (at, byte) in hash.iter_mut().enumerate() {
                *byte = u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).ok()?;
            }
            Some(Mark { stream, volume: tags.number("mark_volume")?, block: tags.number("mark_block")?, hash })
        });
        let group = tags.text("group")?.to_owned();
        Some(Progress { stream: tags.uuid("stream")?, frames: tags.number("frames")?, mark, group })
    }
}

impl Arriving {
    /// Whether all of its volumes are there: its making was not interrupted.
    pub fn is_whole(&self) -> bool {
        let mut all = (0..).zip(&self.volumes);
        all.all(|(at, (_, kept))| kept.number == at && kept.volumes as usize == self.volumes.len())
    }

    /// What is kept with the first volume.
    pub fn tags(&self, progress: &Progress) -> Vec<String> {
        [self.volumes[0].1.tags(), progress.tags()].concat()
    }

    pub fn hidden(&self) -> Vec<VolumeInfo> {
        self.volumes.iter().map(|(hidden, _)| hidden.clone()).collect()
    }

    /// The targets, for people.
    pub fn targets(&self, group: &str) -> String {
        let all = self.volumes.iter().map(|(_, kept)| format!("{group}/{}", kept.target));
        all.collect::<Vec<_>>().join(", ")
    }

    fn unfinished(&self) -> Unfinished {
        let volume = |(hidden, kept): &(VolumeInfo, Kept)| UnfinishedVolume {
            target: kept.target.clone(),
            snapshot: kept.snapshot.clone(),
            source: kept.source.clone(),
            base: kept.base.clone(),
            point: HexUuid(kept.point),
            blocks: kept.blocks,
            held_blocks: hidden.exclusive,
        };
        let is_kept = self.is_whole() && self.volumes.iter().all(|(hidden, _)| hidden.state == VolumeState::Ok);
        Unfinished {
            group: self.progress.group.clone(),
            mark: self.progress.mark.filter(|_| is_kept),
            created: self.volumes[0].0.attributes.created,
            volumes: self.volumes.iter().map(volume).collect(),
        }
    }
}

impl Service {
    /// The receives that have not ended.
    pub(super) fn all_arriving(&self) -> Vec<Arriving> {
        let mut all: BTreeMap<Uuid, Vec<(VolumeInfo, Kept)>> = BTreeMap::new();
        for volume in self.group.volumes_where(|volume| is_being_received(&volume.name)) {
            if let Some(kept) = Kept::of(&volume.attributes.tags) {
                all.entry(kept.receive).or_default().push((volume, kept));
            }
        }
        let arriving = |(receive, mut volumes): (Uuid, Vec<(VolumeInfo, Kept)>)| {
            volumes.sort_by_key(|(_, kept)| kept.number);
            // Without its first volume it was not made, or that one was given up and removed: nothing can go on with it.
            let nothing = Progress { stream: receive, frames: 0, mark: None, group: String::new() };
            let progress = Progress::of(&volumes[0].0.attributes.tags).unwrap_or(nothing);
            Arriving { volumes, progress }
        };
        all.into_iter().map(arriving).collect()
    }

    /// The receive into this target.
    pub(super) fn arriving_at(&self, target: &str) -> Option<Arriving> {
        let is_of_it = |arriving: &Arriving| arriving.volumes.iter().any(|(_, kept)| kept.target == target);
        self.all_arriving().into_iter().find(is_of_it)
    }

    /// The receive that this run of a command goes on with (RX5, RX6).
    pub(super) fn arriving(&self, by: Attempt) -> Result<Arriving> {
        let found = self.all_arriving().into_iter().find(|arriving| arriving.progress.stream == by.stream);
        let group = &self.name;
        let Some(arriving) = found.filter(Arriving::is_whole) else {
            let message = format!("This stream is not being received into volume group \"{group}\" any more.");
            return Err(Failure::new(ErrorKind::Changed, message));
        };
        let targets = arriving.targets(group);
        if arriving.volumes.iter().any(|(hidden, _)| hidden.state == VolumeState::Invalid) {
            let message = format!(
                "Volume group \"{group}\" was full: what was received for {targets} was given up, so that other volumes have the space. \
                 Make room, and give the stream again."
            );
            return Err(Failure::new(ErrorKind::NoSpace, message));
        }
        // After the server's death nobody knows who asked last: the first request resumes.
        let mut attempts = self.attempts.lock();
        let last = *attempts.entry(by.stream).or_insert(by.attempt);
        if last != by.attempt && !planted::is("two_receive_one") {
            let message = format!("Another \"rowen receive\" goes on with this stream into {targets}: this one ends.");
            return Err(Failure::new(ErrorKind::Changed, message));
        }
        Ok(arriving)
    }

    /// What is being received, for who asks.
    pub fn receives(&self) -> Outcome {
        Outcome::Receives(self.all_arriving().iter().map(Arriving::unfinished).collect())
    }

    /// The message when a receive was abandoned for lack of room. None: the volume is not being received.
    pub(super) fn gave_way(&self, volume: &VolumeInfo) -> Option<String> {
        let kept = Kept::of(&volume.attributes.tags).filter(|_| is_being_received(&volume.name))?;
        let (group, target) = (&self.name, kept.target);
        Some(format!("Volume group \"{group}\" is full: what was received for {group}/{target} was given up."))
    }
}
