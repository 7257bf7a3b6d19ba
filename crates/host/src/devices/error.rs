//! Errors of devices, as sentences for the user. If LVM has a sentence for it, Rowen uses LVM's.

use crate::disks::{OpenError, Reason};
use rowen_control::protocol::ErrorKind;
use rowen_control::uuids;
use rowen_engine::units::Uuid;
use std::fmt;
use std::path::{Path, PathBuf};

/// Why a device was not used.
#[derive(Debug)]
pub enum Error {
    /// It could not be opened, or not alone.
    Open(OpenError),
    /// It does not answer.
    Silent(PathBuf),
    /// A path that the devices file cannot hold.
    BadPath(PathBuf),
    /// One path, or two paths to one device, were given twice.
    GivenTwice(PathBuf),
    NotAPv(PathBuf),
    /// pvcreate on a member of a group.
    InitialiseMember {
        path: PathBuf,
        group: String,
    },
    /// pvremove on a member of a group.
    RemoveMember {
        path: PathBuf,
        group: String,
    },
    /// vgcreate or vgextend with a member of a group.
    AddMember {
        path: PathBuf,
        group: String,
        /// The group does not know it any more: it was removed while it was missing.
        is_former: bool,
    },
    DamagedLabel {
        path: PathBuf,
        detail: String,
    },
    NoGroup(String),
    GroupExists(String),
    /// Two groups of one name are attached.
    AmbiguousGroup {
        name: String,
        paths: Vec<PathBuf>,
    },
    MissingPvs {
        group: String,
        missing: Vec<(Uuid, Option<PathBuf>)>,
        damaged: Vec<PathBuf>,
        unreadable: Vec<PathBuf>,
        /// Those without which no command opens the group, and why, if that is known.
        needed: Option<Box<Needed>>,
    },
    /// Devices that have become too small: the bytes that each has, and those that the group uses.
    Shrunk {
        group: String,
        pvs: Vec<(PathBuf, u64, u64)>,
    },
    /// This host has seen a newer state of a group that lacks some, or one without those that are there (NW2).
    Older {
        group: String,
        is_left_behind: bool,
        newer: Vec<(Uuid, Option<PathBuf>)>,
    },
    /// Each of two physical volumes says that the group continues without the other (MB8).
    TwoHalves {
        group: String,
        paths: [PathBuf; 2],
    },
    Duplicate {
        uuid: Uuid,
        paths: Vec<PathBuf>,
    },
    /// The user must agree first: the question, and the message if the answer is no.
    Confirm {
        question: String,
        refused: String,
    },
    Io {
        path: PathBuf,
        what: &'static str,
        source: std::io::Error,
    },
    Engine {
        path: PathBuf,
        source: rowen_engine::error::Error,
    },
}

/// Missing physical volumes without which no command opens the group.
#[derive(Debug)]
pub struct Needed {
    pub pvs: Vec<Uuid>,
    pub why: &'static str,
}

fn join(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(" and ")
}

/// A path that may have line breaks, on one line.
fn shown(path: &Path) -> String {
    format!("{:?}", path.to_string_lossy())
}

/// A missing physical volume may be one of these.
fn labels_that_say_nothing(f: &mut fmt::Formatter<'_>, damaged: &[PathBuf], unreadable: &[PathBuf]) -> fmt::Result {
    if !damaged.is_empty() {
        write!(f, " The label on {} is damaged.", join(damaged))?;
    }
    if !unreadable.is_empty() {
        write!(f, " The label on {} cannot be read: look at the disk (dmesg).", join(unreadable))?;
    }
    Ok(())
}

fn physical_volumes_missing(
    f: &mut fmt::Formatter<'_>,
    group: &str,
    missing: &[(Uuid, Option<PathBuf>)],
) -> fmt::Result {
    write!(f, "Volume group \"{group}\" cannot be opened:")?;
    with_places(f, missing)?;
    f.write_str(if missing.len() == 1 { " is missing." } else { " are missing." })
}

/// What leads out, besides the disks' return.
fn way_out(f: &mut fmt::Formatter<'_>, group: &str, needed: Option<&Needed>) -> fmt::Result {
    let Some(Needed { pvs, why }) = needed else {
        return write!(f, " To go on without: vgchange -ay --activationmode partial {group}.");
    };
    let names: Vec<String> = pvs.iter().map(|uuid| uuids::lvm_text(*uuid)).collect();
    match &names[..] {
        [name] => write!(f, " It cannot go on without physical volume {name}: {why}. Attach its disk."),
        _ => write!(
            f,
            " It cannot go on without physical volumes {}: {why}. Attach one of their disks.",
            names.join(" and ")
        ),
    }
}

fn with_places(f: &mut fmt::Formatter<'_>, pvs: &[(Uuid, Option<PathBuf>)]) -> fmt::Result {
    for (position, (uuid, path)) in pvs.iter().enumerate() {
        let and = if position > 0 { " and" } else { "" };
        write!(f, "{and} physical volume {}", uuids::lvm_text(*uuid))?;
        if let Some(path) = path {
            write!(f, " (last seen at {})", path.display())?;
        }
    }
    Ok(())
}

/// A device, the bytes that it has, and those that its group uses.
pub fn shrank((path, has, uses): &(PathBuf, u64, u64)) -> String {
    format!("physical volume {} shrank: it has {has} bytes, the volume group uses {uses}", path.display())
}

fn shrunk(f: &mut fmt::Formatter<'_>, group: &str, pvs: &[(PathBuf, u64, u64)]) -> fmt::Result {
    let sentences: Vec<String> = pvs.iter().map(shrank).collect();
    write!(
        f,
        "Volume group \"{group}\" cannot be opened: {}; make its device as large again. To go on without: vgchange -ay \
         --activationmode partial {group}.",
        sentences.join("; ")
    )
}

fn older(
    f: &mut fmt::Formatter<'_>,
    group: &str,
    is_left_behind: bool,
    newer: &[(Uuid, Option<PathBuf>)],
) -> fmt::Result {
    write!(f, "Volume group \"{group}\" cannot be opened: this host has seen ")?;
    f.write_str(if is_left_behind {
        "that it went on without the disks that are attached, on"
    } else {
        "a newer state of it, on"
    })?;
    with_places(f, newer)?;
    write!(
        f,
        ". Attach the disk with the newer state. If it is lost, go on with the older state: vgchange -ay \
         --activationmode partial --force {group}."
    )
}

fn find_split_brain(f: &mut fmt::Formatter<'_>, group: &str, [one, other]: &[PathBuf; 2]) -> fmt::Result {
    write!(
        f,
        "Volume group \"{group}\" cannot be opened: {} and {} went on without each other, and no program can join what was written \
         to each. Detach the disks of one half, or give them up with pvremove -ff.",
        one.display(),
        other.display()
    )
}

fn add_member(f: &mut fmt::Formatter<'_>, path: &Path, group: &str, is_former: bool) -> fmt::Result {
    let path = path.display();
    writeln!(f, "Physical volume '{path}' is already in volume group '{group}'")?;
    if is_former {
        writeln!(
            f,
            "It was removed from volume group '{group}' while it was missing, and its label does not know that. To use it again, \
             without what is on it: pvremove -ff {path}"
        )?;
    }
    write!(
        f,
        "Unable to add physical volume '{path}' to volume group '{group}'\n{path}: physical volume not initialized."
    )
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Open(OpenError { path, reason: Reason::Missing | Reason::NotADisk(_) }) => {
                write!(f, "No device found for {}.", path.display())
            }
            Error::Open(error) => write!(f, "{error}."),
            Error::Silent(path) => write!(
                f,
                "{} does not answer. Check the device, or the server of the group that it lies on, and try again.",
                path.display()
            ),
            Error::BadPath(path) => write!(f, "Cannot use {}: its path contains a line break.", shown(path)),
            Error::GivenTwice(path) => write!(f, "Physical volume {} was given more than once.", path.display()),
            Error::NotAPv(path) => write!(f, "No PV found on device {}.", path.display()),
            Error::InitialiseMember { path, group } => write!(
                f,
                "Can't initialize physical volume \"{0}\" of volume group \"{group}\" without -ff\n\
                 {0}: physical volume not initialized.",
                path.display()
            ),
            Error::RemoveMember { path, group } => write!(
                f,
                "PV {0} is used by VG {group} so please use vgreduce first.\n\
                 (If you are certain you need pvremove, then confirm by using --force twice.)\n\
                 {0}: physical volume label not removed.",
                path.display()
            ),
            Error::AddMember { path, group, is_former } => add_member(f, path, group, *is_former),
            Error::DamagedLabel { path, detail } => write!(
                f,
                "The label of physical volume {} is damaged ({detail}); use -ff to overwrite it.",
                path.display()
            ),
            Error::NoGroup(name) => {
                write!(f, "Volume group \"{name}\" not found\nCannot process volume group {name}")
            }
            Error::GroupExists(name) => write!(f, "A volume group called {name} already exists."),
            Error::AmbiguousGroup { name, paths } => {
                write!(f, "There are two volume groups called {name}, on {}; detach one of them.", join(paths))
            }
            Error::MissingPvs { group, missing, damaged, unreadable, needed } => {
                physical_volumes_missing(f, group, missing)?;
                labels_that_say_nothing(f, damaged, unreadable)?;
                way_out(f, group, needed.as_deref())
            }
            Error::Shrunk { group, pvs } => shrunk(f, group, pvs),
            Error::Older { group, is_left_behind, newer } => older(f, group, *is_left_behind, newer),
            Error::TwoHalves { group, paths } => find_split_brain(f, group, paths),
            Error::Duplicate { uuid, paths } => write!(
                f,
                "Physical volume {} is there more than once, at {}; detach the copies.",
                uuids::lvm_text(*uuid),
                join(paths)
            ),
            Error::Confirm { question, refused } => write!(f, "{question}[n]\n{refused}"),
            Error::Io { path, what, source } => write!(f, "Cannot {what} {}: {source}.", path.display()),
            Error::Engine { path, source } => write!(f, "Cannot use {}: {source}.", path.display()),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io { source, .. } => Some(source),
            Error::Engine { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl From<OpenError> for Error {
    fn from(error: OpenError) -> Error {
        Error::Open(error)
    }
}

impl Error {
    /// What sort of failure it is, for programs.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Open(error) => match error.reason {
                Reason::Missing => ErrorKind::NotFound,
                Reason::InUse { .. } | Reason::Mounted { .. } => ErrorKind::InUse,
                Reason::ReadOnly => ErrorKind::Denied,
                Reason::NotADisk(_) | Reason::TooSmall { .. } | Reason::TooMany => ErrorKind::Invalid,
                Reason::System { .. } => ErrorKind::Io,
            },
            Error::NotAPv(_) | Error::NoGroup(_) | Error::MissingPvs { .. } | Error::Older { .. } => {
                ErrorKind::NotFound
            }
            Error::BadPath(_) | Error::GivenTwice(_) | Error::Shrunk { .. } => ErrorKind::Invalid,
            Error::Confirm { .. } => ErrorKind::Denied,
            Error::InitialiseMember { .. }
            | Error::RemoveMember { .. }
            | Error::AddMember { .. }
            | Error::GroupExists(_)
            | Error::AmbiguousGroup { .. }
            | Error::TwoHalves { .. }
            | Error::Duplicate { .. } => ErrorKind::Exists,
            Error::DamagedLabel { .. } => ErrorKind::Damaged,
            Error::Io { .. } | Error::Silent(_) => ErrorKind::Io,
            Error::Engine { source, .. } => rowen_control::service::failure::engine_kind(source),
        }
    }
}
