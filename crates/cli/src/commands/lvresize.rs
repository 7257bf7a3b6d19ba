//! lvextend, lvreduce and lvresize. The size of a snapshot with a size is its reserve. A thick volume grows on the
//! physical volumes that are named. Without a size, it grows by all the free space that they have.
//!
//! The new size is computed from the old one, and the request carries the old one. If the volume has another size by
//! then, the server refuses, and the command computes again. So no caller undoes the change of another.

use super::filesystem::{self, Filesystem};
use super::{mirrors, places, policy, stripes};
use crate::failure::{Failure, Result};
use crate::options::Opt;
use crate::parse::{Args, refuse_sign};
use crate::roles::{Role, extent_bytes, extents_of, role, shown_blocks};
use crate::session::Session;
use rowen_control::protocol::{GroupReport, PvPart, Request, SegmentType, VolumeReport};
use rowen_control::sizes::{self, Extents, ShareOf, Sign};
use rowen_control::units::sentence;
use rowen_engine::units::BLOCK_SIZE;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Up,
    Down,
    Either,
}

pub fn extend(session: &mut Session<'_>, args: &Args) -> Result {
    if args.has(Opt::UsePolicies) { by_policy(session, args) } else { run(session, args, Direction::Up) }
}

pub fn reduce(session: &mut Session<'_>, args: &Args) -> Result {
    run(session, args, Direction::Down)
}

pub fn resize(session: &mut Session<'_>, args: &Args) -> Result {
    run(session, args, Direction::Either)
}

fn run(session: &mut Session<'_>, args: &Args, direction: Direction) -> Result {
    // A pool's metadata grows by itself. A request for that alone changes nothing.
    let names_pvs = args.positionals.len() > 1 && direction != Direction::Down && !args.has(Opt::MorePoolMetadata);
    let has_size = args.has(Opt::NewSize) || args.has(Opt::NewExtents) || names_pvs;
    match direction {
        Direction::Up => refuse_sign(args, Sign::Minus)?,
        Direction::Down => refuse_sign(args, Sign::Plus)?,
        Direction::Either => {}
    }
    let Some((word, pvs)) = args.positionals.split_first() else { return Err(Failure::NoForm) };
    if args.has(Opt::NewSize) && args.has(Opt::NewExtents) {
        return Err(Failure::usage("Please specify either size or extents but not both."));
    }
    if !has_size && !args.has(Opt::MorePoolMetadata) {
        return Err(Failure::NoForm);
    }
    let is_zero = |option: Opt| match option {
        Opt::NewSize => args.size(option).is_some_and(|size| size.bytes == 0),
        _ => args.extents(option).is_some_and(|extents| extents.count == 0),
    };
    if let Some(option) = [Opt::NewSize, Opt::NewExtents].into_iter().find(|option| is_zero(*option)) {
        return Err(Failure::usage(format!("--{} may not be zero.", option.spec().long)));
    }
    if args.size(Opt::MorePoolMetadata).is_some_and(|size| size.sign == Sign::Minus) {
        return Err(Failure::usage("Can't reduce pool metadata size."));
    }
    super::redundancy::refuse(args)?;
    let asked = if has_size { Asked::Size } else { Asked::Nothing };
    let wish = Wish { args, direction, word, pvs, asked };
    // The filesystem's tools rely on the size that was read. The lock keeps other commands from resizing meanwhile.
    let _turn = match has_size && filesystem::is_wanted(args) && !session.is_test {
        true => {
            let (report, _) = session.one_volume(word, missing)?;
            session.backend.turn(&report.name)?
        }
        false => None,
    };
    wish.come_true(session)
}

/// `--use-policies`: the settings decide whether it grows, and by how much.
fn by_policy(session: &mut Session<'_>, args: &Args) -> Result {
    let Some((word, pvs)) = args.positionals.split_first() else { return Err(Failure::NoForm) };
    if [Opt::NewSize, Opt::NewExtents, Opt::MorePoolMetadata].into_iter().any(|option| args.has(option)) {
        return Err(Failure::OtherForm(Opt::UsePolicies.spec().long));
    }
    Wish { args, direction: Direction::Up, word, pvs, asked: Asked::ByPolicy }.come_true(session)
}

fn missing(group: &str, name: &str) -> String {
    format!("Logical volume {name} not found in volume group {group}.")
}

/// The result of a size that was computed from the volume's old size.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Attempt {
    Done,
    /// Another caller has resized the volume meanwhile, and nothing was done.
    Overtaken,
}

/// How often a size is computed again. If several callers resize one volume at once, one succeeds in each round.
const ATTEMPTS: usize = 1000;

/// How the command line gives the new size.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asked {
    Nothing,
    Size,
    ByPolicy,
}

/// What the command line asks for.
struct Wish<'a> {
    args: &'a Args,
    direction: Direction,
    word: &'a str,
    pvs: &'a [String],
    asked: Asked,
}

impl Wish<'_> {
    fn come_true(&self, session: &mut Session<'_>) -> Result {
        for attempt in 0..ATTEMPTS {
            if self.carry_out(session, attempt > 0)? == Attempt::Done {
                return Ok(());
            }
        }
        let word = self.word;
        Err(Failure::failed(format!("Logical volume {word} is resized by other commands all the time; try again.")))
    }

    /// `is_again`: the messages about the size have been printed.
    fn carry_out(&self, session: &mut Session<'_>, is_again: bool) -> Result<Attempt> {
        let Wish { args, direction, word, pvs, asked } = *self;
        let (report, volume) = session.one_volume(word, missing)?;
        if volume.is_waiting_to_merge() {
            return Err(Failure::failed(format!(
                "Can't resize internal logical volume {}/{}.",
                report.name, volume.name
            )));
        }
        refuse_another_layout(args, &report, &volume)?;
        let on = chosen(session, &report, &volume, pvs)?;
        let old = extents_of(&report, shown_blocks(&volume));
        if asked == Asked::Nothing {
            session.console.say(format!("Logical volume {}/{} successfully resized.", report.name, volume.name));
            return Ok(Attempt::Done);
        }
        let wanted = match asked {
            Asked::ByPolicy => match policy::growth(session, args, is_again, &report, &volume)? {
                Some(percent) => old.saturating_add(sizes::share_up(percent, old)),
                None => return Ok(Attempt::Done),
            },
            _ => wanted_extents(session, (args, is_again), &report, &volume, old, &on)?,
        };
        let (new, is_capped) = capped(session, is_again, &report, &volume, wanted);
        let resizes_filesystem = filesystem::is_wanted(args);
        check_direction(old, new, direction, is_capped || resizes_filesystem)?;
        let full = format!("{}/{}", report.name, volume.name);
        let filesystem = match resizes_filesystem {
            true => Some(Filesystem::on(session, &report, &volume)?),
            false => None,
        };
        match &filesystem {
            Some(filesystem) if new < old => {
                filesystem.shrink(session, args, new.saturating_mul(extent_bytes(&report)))?;
            }
            Some(filesystem) => filesystem.before_growth(session, args)?,
            None => {}
        }
        if new < old && filesystem.is_none() {
            confirm_reduction(session, args, &report, &volume, new)?;
        } else if new > old {
            check_room(session, &report, &volume, new - old, &on)?;
        }
        if new != old {
            let blocks = new.checked_mul(report.extent_blocks).ok_or_else(|| too_large(&full))?;
            let name = volume.name.clone();
            let request = match role(&volume) {
                Role::Snapshot if volume.reserve_blocks.is_some() => {
                    Request::SetReserve { name, blocks: Some(blocks), seen: volume.reserve_blocks }
                }
                // The user has confirmed, by answer or by option.
                _ => {
                    let on = if new > old { on } else { Vec::new() };
                    Request::Resize { name, blocks, force: new < old, on, seen: Some(volume.blocks) }
                }
            };
            if !session.change_unless_overtaken(&report.name, request)? {
                return Ok(Attempt::Overtaken);
            }
        }
        let size =
            |extents: u64| format!("{} ({extents} extents)", sentence(extents.saturating_mul(extent_bytes(&report))));
        session.console.say(match new == old {
            true => format!("Size of logical volume {full} unchanged from {}.", size(old)),
            false => format!("Size of logical volume {full} changed from {} to {}.", size(old), size(new)),
        });
        session.console.say(format!("Logical volume {full} successfully resized."));
        match filesystem {
            Some(filesystem) if new >= old => filesystem.grow(session)?,
            _ => {}
        }
        Ok(Attempt::Done)
    }
}

/// Refuses a new size with other copies or stripes than the volume has.
fn refuse_another_layout(args: &Args, report: &GroupReport, volume: &VolumeReport) -> Result {
    mirrors::refuse_others(args, report, volume)?;
    let own = report.stripes.filter(|_| volume.is_striped()).map(|own| own.layout);
    stripes::refuse_others(args, report, &volume.name, own)
}

/// The stripes of the group's striped volumes.
fn columns(report: &GroupReport) -> u64 {
    report.stripes.map_or(1, |own| own.layout.columns.into())
}

/// A striped volume has whole rows. The size is rounded up, so that nothing is cut off that should stay; a share of what is
/// free is rounded down.
fn in_rows(
    session: &mut Session<'_>,
    (args, is_again): (&Args, bool),
    report: &GroupReport,
    volume: &VolumeReport,
    (old, wanted): (u64, u64),
) -> Result<u64> {
    if !volume.is_striped() || wanted == old || role(volume) == Role::Snapshot {
        return Ok(wanted);
    }
    let is_share = args.extents(Opt::NewExtents).is_some_and(|extents| extents.of.is_some());
    let is_up = wanted < old || !is_share;
    if is_again {
        let columns = columns(report);
        return Ok(if is_up { wanted.next_multiple_of(columns) } else { wanted / columns * columns });
    }
    stripes::whole_rows(session, report, wanted, columns(report), is_up)
}

fn too_large(full: &str) -> Failure {
    Failure::failed(format!("The new size of logical volume {full} is too large."))
}

/// The physical volumes or extents on which a thick volume grows.
fn chosen(
    session: &mut Session<'_>,
    report: &GroupReport,
    volume: &VolumeReport,
    words: &[String],
) -> Result<Vec<PvPart>> {
    let parts = places::named(session, report, words)?;
    let what = match role(volume) {
        Role::Plain => return places::usable(session, report, volume.segment, parts),
        Role::Pool => "a thin pool",
        Role::Thin => "a thin volume",
        Role::Snapshot => "a snapshot",
    };
    places::refuse_choice(report, &parts, what)?;
    Ok(Vec::new())
}

/// The size that the command line asks for, in extents.
fn wanted_extents(
    session: &mut Session<'_>,
    (args, is_again): (&Args, bool),
    report: &GroupReport,
    volume: &VolumeReport,
    old: u64,
    on: &[PvPart],
) -> Result<u64> {
    /// The meaning of physical volumes without a size.
    const ALL_OF_THEM: Extents = Extents { sign: Sign::Plus, count: 100, of: Some(ShareOf::Pvs) };
    let full = format!("{}/{}", report.name, volume.name);
    let (sign, amount) = if let Some(size) = args.size(Opt::NewSize) {
        let extent = extent_bytes(report);
        let extents = size.bytes.div_ceil(extent);
        if size.bytes % extent != 0 && !is_again {
            let rounded = extents.saturating_mul(extent);
            session.console.say(format!("Rounding size to boundary between physical extents: {}.", sentence(rounded)));
        }
        (size.sign, extents)
    } else {
        let extents = args.extents(Opt::NewExtents).unwrap_or(ALL_OF_THEM);
        let amount = share_of(session, report, volume, &extents, on)?;
        // A percentage above the free space of the places means all of it.
        let is_share = matches!(extents.of, Some(ShareOf::Group | ShareOf::Free | ShareOf::Pvs));
        match extents.sign {
            Sign::Plus if extents.of == Some(ShareOf::Free) => {
                (Sign::Plus, amount.min(can_grow_by(session, report, volume, on, amount)?))
            }
            Sign::None if is_share && amount > old => {
                let most = old.saturating_add(can_grow_by(session, report, volume, on, amount - old)?);
                if most < amount && extents.of == Some(ShareOf::Group) && !is_again {
                    let (asked, left) = (extents.count, sentence(most.saturating_mul(extent_bytes(report))));
                    session.console.say(format!("Reducing {asked}%VG to remaining free space {left} in VG."));
                }
                (Sign::None, amount.min(most))
            }
            sign => (sign, amount),
        }
    };
    let new = match sign {
        Sign::None => amount,
        Sign::Plus => old.checked_add(amount).ok_or_else(|| too_large(&full))?,
        Sign::Minus if amount >= old => {
            return Err(Failure::failed(format!("Unable to reduce {full} below 1 extent.")));
        }
        Sign::Minus => old - amount,
    };
    match new {
        0 => Err(Failure::failed("New size of 0 not permitted.")),
        new => in_rows(session, (args, is_again), report, volume, (old, new)),
    }
}

fn share_of(
    session: &mut Session<'_>,
    report: &GroupReport,
    volume: &VolumeReport,
    extents: &Extents,
    on: &[PvPart],
) -> Result<u64> {
    let count = extents.count;
    Ok(match extents.of {
        None => count,
        Some(ShareOf::Pvs) if !on.is_empty() => {
            sizes::share(count, mirrors::free_for(session, report, volume.segment, on, report.extents)?)
        }
        Some(ShareOf::Group) => sizes::share(count, report.extents),
        Some(ShareOf::Pvs) => sizes::share(count, report.extents),
        Some(ShareOf::Free) => {
            let free = match volume.segment {
                SegmentType::Linear => session.free_extents(report, report.extents)?,
                several => mirrors::free_for(session, report, several, &[], report.extents)?,
            };
            sizes::share(count, room_for(report, volume, free))
        }
        Some(ShareOf::Volume) => sizes::share_up(count, extents_of(report, shown_blocks(volume))),
        Some(ShareOf::Origin) => {
            if volume.origin.is_none() {
                let full = format!("{}/{}", report.name, volume.name);
                return Err(Failure::failed(format!(
                    "Specified LV {full} is not a snapshot: %ORIGIN makes no sense for it."
                )));
            }
            sizes::share_up(count, most_useful(report, volume))
        }
    })
}

/// By how many of the group's free extents the volume can grow. A pool counts the part of its size that its volumes do
/// not use yet.
fn room_for(report: &GroupReport, volume: &VolumeReport, free: u64) -> u64 {
    match role(volume) {
        Role::Pool => {
            let held = extents_of(report, volume.referenced_blocks.min(volume.blocks));
            free.saturating_sub(extents_of(report, volume.blocks).saturating_sub(held))
        }
        _ => free,
    }
}

/// By how many extents the volume can grow in these places, or anywhere if there are none. Waits until `wanted` extents
/// are free, if space is being freed.
fn can_grow_by(
    session: &mut Session<'_>,
    report: &GroupReport,
    volume: &VolumeReport,
    on: &[PvPart],
    wanted: u64,
) -> Result<u64> {
    match role(volume) {
        Role::Pool => {
            let free = session.free_extents(report, wanted.saturating_add(extents_of(report, volume.blocks)))?;
            Ok(room_for(report, volume, free))
        }
        _ => mirrors::free_for(session, report, volume.segment, on, wanted),
    }
}

/// The most extents that a snapshot of this volume's size can use.
fn most_useful(report: &GroupReport, volume: &VolumeReport) -> u64 {
    sizes::most_useful_reserve(volume.blocks.saturating_mul(BLOCK_SIZE), BLOCK_SIZE, extent_bytes(report))
}

/// A reserve never grows beyond what the snapshot can use.
fn capped(
    session: &mut Session<'_>,
    is_again: bool,
    report: &GroupReport,
    volume: &VolumeReport,
    wanted: u64,
) -> (u64, bool) {
    let is_reserve = role(volume) == Role::Snapshot && volume.reserve_blocks.is_some();
    let most = most_useful(report, volume);
    if !is_reserve || wanted <= most {
        return (wanted, false);
    }
    if !is_again {
        let size = sentence(most.saturating_mul(extent_bytes(report)));
        session.console.say(format!("Reached maximum COW size {size} ({most} extents)."));
    }
    (most, true)
}

fn check_direction(old: u64, new: u64, direction: Direction, is_capped: bool) -> Result {
    let message = match direction {
        _ if new == old && !is_capped => format!("New size ({new} extents) matches existing size ({old} extents)."),
        Direction::Up if new < old => {
            format!("New size given ({new} extents) not larger than existing size ({old} extents)")
        }
        Direction::Down if new > old => {
            format!("New size given ({new} extents) not less than existing size ({old} extents)")
        }
        _ => return Ok(()),
    };
    Err(Failure::failed(message))
}

/// The engine decides about space. This check gives LVM's message first.
fn check_room(
    session: &mut Session<'_>,
    report: &GroupReport,
    volume: &VolumeReport,
    more: u64,
    on: &[PvPart],
) -> Result {
    match role(volume) {
        Role::Thin => Ok(()),
        _ if volume.is_mirrored() => mirrors::check_room(session, report, (&volume.name, more), on),
        _ if volume.is_striped() => stripes::check_room(session, report, columns(report), (&volume.name, more), on),
        // A pool reserves nothing, but a pool larger than the group is a mistake.
        Role::Plain | Role::Snapshot | Role::Pool => {
            let free = can_grow_by(session, report, volume, on, more)?;
            places::refuse_more(more, free.saturating_add(places::to_dissolve(report)))
        }
    }
}

fn confirm_reduction(
    session: &mut Session<'_>,
    args: &Args,
    report: &GroupReport,
    volume: &VolumeReport,
    new: u64,
) -> Result {
    let is_reserve = role(volume) == Role::Snapshot && volume.reserve_blocks.is_some();
    if !volume.node.active || is_reserve {
        return Ok(());
    }
    let full = format!("{}/{}", report.name, volume.name);
    let size = sentence(new.saturating_mul(extent_bytes(report)));
    let open = if volume.node.open { " and open" } else { "" };
    session.console.complain(format!(
        "WARNING: Reducing active{open} logical volume to {size}.\nTHIS MAY DESTROY YOUR DATA (filesystem etc.)"
    ));
    if args.assumes_yes() || session.console.asks(&format!("Do you really want to reduce {full}?")) {
        return Ok(());
    }
    Err(Failure::failed(format!("Logical volume {full} NOT reduced.")))
}
