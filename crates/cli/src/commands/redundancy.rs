//! LVM's options and types for parity, caches and others that there are not. They are refused. Mirrors are in
//! [`super::mirrors`].

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

/// Refuses kinds of volume that there are not. A volume without the redundancy would endanger data that the caller
/// believes to be safe.
pub fn refuse(args: &Args) -> Result {
    if let Some(kind) = args.text(Opt::Type).filter(|kind| !TYPES.contains(kind)) {
        let instead = match kind {
            _ if kind.starts_with("raid10") => {
                " For two copies of the data use --type raid1, for stripes --type striped --stripes N; both together are not supported."
            }
            _ if kind.starts_with("raid0") => " Use --type striped --stripes N.",
            "raid" => " For two copies of the data use --type raid1.",
            _ if kind.starts_with("raid") => {
                " For two copies of the data use --type raid1; for parity put the physical volumes on RAID (md, hardware)."
            }
            _ => "",
        };
        return Err(Failure::failed(format!(
            "Segment type \"{kind}\" is not supported: volumes are linear, striped, mirrored (raid1), thin or snapshots.{instead}"
        )));
    }
    let given = |(what, options): &(&'static str, &[Opt])| {
        options.iter().find(|option| args.has(**option)).map(|option| (*what, option.spec().long))
    };
    match NOT_THERE.iter().find_map(given) {
        Some((what, long)) => Err(Failure::failed(format!("--{long} makes no sense here: there {what}."))),
        None => Ok(()),
    }
}
