//! What the tables do not say: letters of attributes, what is not there and why, where Rowen is not like LVM.

/// A list of terms with their meaning, under a heading of a command's page.
pub struct Note {
    pub command: &'static str,
    pub title: &'static str,
    pub terms: &'static [(&'static str, &'static str)],
}

pub const NOTES: &[Note] = &[
    Note {
        command: "lvs",
        title: "ATTRIBUTES",
        terms: &[
            (
                "1 kind",
                "(-) plain, (o) origin of snapshots with a size, (s) such a snapshot, (O) and (S) the same while a \
                        merge waits, (t) thin pool, (V) thin volume; a sparse volume is an (s), too.",
            ),
            ("2 permission", "(w) writable, (r) read-only, (R) activated read-only: read_only_volume_list."),
            ("3 allocation", "(i) as the group has it."),
            ("4 minor number", "(-) never fixed."),
            ("5 state", "(a) active, (-) inactive, (I) a snapshot that outgrew its size."),
            ("6 device", "(o) in use."),
            ("7 target", "(s) snapshot or origin, (t) thin."),
            ("8 zero", "(z) new space reads as zeros; so it does everywhere, the letter is LVM's for thin volumes."),
            ("9 health", "(D) a thin pool whose volumes hold all that they may."),
            ("10 skip", "(k) activation passes it by unless -K is given."),
        ],
    },
    Note {
        command: "vgs",
        title: "ATTRIBUTES",
        terms: &[
            ("1 permission", "(w) writable."),
            ("2 resizable", "(z) physical volumes may be added."),
            ("3 exported", "(x) nothing may be activated."),
            ("4 partial", "(-) a group with a physical volume missing is not opened."),
            ("5 allocation", "(n) normal, (c) contiguous, (l) cling, (a) anywhere: kept and shown."),
            ("6 shared", "(-)."),
        ],
    },
    Note {
        command: "pvs",
        title: "ATTRIBUTES",
        terms: &[
            (
                "1 allocatable",
                "(a) belongs to a group, which takes space from it; (u) belongs to one that does not: pvchange -x n; \
                 (-) belongs to none.",
            ),
            ("2 exported", "(x) its group is exported."),
            ("3 missing", "(-)."),
        ],
    },
    Note {
        command: "lvcreate",
        title: "SNAPSHOTS",
        terms: &[
            (
                "with a size",
                "That much space is set aside. When it is used up the snapshot is invalid and the origin goes on; \
                             the snapshot goes with its origin. This is LVM's copy-on-write snapshot, without the copying.",
            ),
            (
                "without a size",
                "The snapshot shares the group's free space and outlives its origin. LVM needs a thin pool for \
                                that.",
            ),
        ],
    },
];

/// What LVM has and Rowen has not, and why.
pub const REFUSED: &[(&str, &str)] = &[
    (
        "striped, mirror, raid, cache, writecache, vdo, integrity types",
        "placement is linear: put the redundancy under the \
      physical volumes (md, hardware) or above (the application)",
    ),
    (
        "`lvconvert --splitsnapshot`, `--type snapshot --zero n`",
        "a snapshot has no store apart from its origin that could be used again",
    ),
    ("`lvconvert --type thin` of a volume that is in use", "its contents change hands: close it first"),
    (
        "`pvmove`",
        "extents cannot be moved yet. To empty a disk: `pvchange -x n DISK`, for each volume on it (`lvs -o +devices`) `lvcreate` \
         another, copy the contents and `lvremove` the old one with its snapshots, then `vgreduce VG DISK`",
    ),
    (
        "`vgsplit`, `vgmerge`, `vgimportclone`",
        "a group has one tree of blocks over all its physical volumes, which cannot be cut \
      or joined",
    ),
    ("`--persistent`, `--major`, `--minor`", "device numbers are the loop driver's"),
    (
        "`lvmlockd`, `--lockstart`, shared groups, system IDs",
        "a group is open on one machine, which holds its devices \
      exclusively",
    ),
    (
        "profiles; most of `lvm.conf`",
        "what there is to set is in rowen.conf (docs/operations.md), under LVM's names where LVM has it, and all of it can be \
      given with `--config`; `lvmconfig --list` names it. An `lvm.conf` is read only from the directory that \
      `LVM_SYSTEM_DIR` names",
    ),
    (
        "`lvmdump`, `lvmsar`, `lvmsadc`",
        "diagnosis of the kernel's device-mapper, which is not used; `rowen check` \
      and `rowen stats` tell about a group",
    ),
    ("`and`, `or` as words in `-S`", "LVM does not take them either: `&&` or `,`, and `||` or `#`"),
];

/// Where something is there and not the same.
pub const DIFFERENCES: &[(&str, &str)] = &[
    (
        "a snapshot copies a chunk on its first write (`-c`)",
        "nothing is copied; `-c` (4k to 512k) says how much contiguous \
      space the first write in a chunk reserves, so that its neighbours land beside it; a pool's may be any multiple of 64k, and counts as a power of two",
    ),
    ("a snapshot without `-L` needs a thin pool", "it shares the group's free space"),
    ("`lvcreate -s -L`: full means invalid", "the same: the snapshot becomes invalid, the origin goes on"),
    ("removing an origin removes its snapshots", "snapshots with a size follow it, as in LVM; the others stay"),
    (
        "a thin pool has metadata to size and repair",
        "`lvcreate -T` is accepted; a pool's size bounds what its volumes hold \
      together, and holds no space back for them; writes beyond it wait a minute and then fail, as LVM's, or fail at once; `metadata_percent` is the share of the group that metadata takes. A pool is made no \
      larger than it could be filled: what is free counts for `lvextend` without what its size claims already",
    ),
    (
        "a sparse volume (`lvcreate --type snapshot -V`) has a store of `-L`, and is full with it",
        "it takes space of the group as it is written; `-L` bounds nothing. Its size is the virtual one, and it has no `[..._vorigin]`",
    ),
    (
        "`lvremove` frees before it returns",
        "it returns at once; space comes back in the background, and a command that needs \
      it waits for it",
    ),
    ("a PV is a block device", "or a file"),
    (
        "`pvresize`",
        "the same, for any PV of a group in use: its end must be free before it gets smaller, metadata moves away from there. A size \
         beyond the device's is refused. Groups that were made by earlier versions have room \
         to grow behind the last PV only",
    ),
    (
        "`pvchange -x n`: no new extents from this PV",
        "the same, blocks that are redirected and metadata included; the journal stays where it is. `vg_free` tells of what is free \
      there, too, as in LVM; warnings and refusals count only what can be taken. Refused while space there is promised (to \
      snapshots with a size) and the others have too little",
    ),
    (
        "`lvcreate ... VG PV[:PE[-PE]]`, `lvextend ... LV PV`",
        "the same for thick volumes: their extents are taken from there and from nowhere else; blocks that are redirected later \
      around a snapshot go where the group has room. Thin volumes, pools and snapshots take their blocks as they are written to: \
      for them a choice that leaves out a physical volume is refused",
    ),
    ("`--sharedstore` (a later patch set)", "accepted, and does nothing: every snapshot shares"),
    (
        "`devices`, `seg_pe_ranges`, `pvs --segments`: exact extents",
        "blocks lie wherever the last write put them: a volume has a \
      segment for each physical volume that it is on, named by the extent with its first block there; exact for a volume that \
      was never redirected. Of a volume with very many pieces the first 64 leaves of its map are looked at, and one without any \
      block yet is shown at the group's first extent",
    ),
    (
        "`pool_tdata`, `pool_tmeta`, `lvol0_pmspare`",
        "there are no such volumes: `-a` adds only snapshots that wait to be merged, `data_lv` and \
      `metadata_lv` are blank",
    ),
    ("`--reportformat json_std` since 2.03.17", "there"),
    (
        "`vgcfgrestore` gives back volumes that were removed",
        "a copy of the metadata holds names and properties, never where \
      the data is: removed volumes are named and refused, sizes stay",
    ),
    (
        "`archive/` holds a copy from before each command",
        "the copy from before is moved there when the next one is written; \
      commands that come fast share one",
    ),
];
