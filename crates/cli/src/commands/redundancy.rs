//! LVM's options and types for redundancy and caches. All of them are refused.

use crate::failure::{Failure, Result};
use crate::options::{Opt, TYPES};
use crate::parse::Args;

/// Kinds of volume that Rowen does not have, and their options.
const NOT_THERE: &[(&str, &[Opt])] = &[
    (
        "are no caches",
        &[
            Opt::MakeCache,
            Opt::CachePool,
            Opt::CacheVol,
            Opt::CacheDevice,
            Opt::CacheMode,
            Opt::CachePolicy,
            Opt::CacheSettings,
            Opt::SplitCache,
            Opt::Uncache,
        ],
    ),
    ("is no VDO", &[Opt::Compression, Opt::Deduplication, Opt::VdoSettings, Opt::VdoPool]),
];

/// Refuses redundant and cached kinds of volume. A volume without the redundancy would endanger data that the caller
/// believes to be safe.
pub fn refuse(args: &Args) -> Result {
    if let Some(kind) = args.text(Opt::Type).filter(|kind| !TYPES.contains(kind)) {
        return Err(Failure::failed(format!(
            "Segment type \"{kind}\" is not supported: volumes are linear, thin or snapshots. For redundancy put the physical \
             volumes on RAID."
        )));
    }
    let given = |(what, options): &(&'static str, &[Opt])| {
        options.iter().find(|option| args.has(**option)).map(|option| (*what, option.spec().long))
    };
    if let Some((what, long)) = NOT_THERE.iter().find_map(given) {
        return Err(Failure::failed(format!("--{long} makes no sense here: there {what}.")));
    }
    match args.number(Opt::Mirrors) {
        None | Some(0) => Ok(()),
        Some(_) => Err(Failure::failed(
            "Mirrored logical volumes are not supported. For redundancy put the physical volumes on RAID.",
        )),
    }
}
