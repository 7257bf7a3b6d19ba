//! Facts that the tables do not have: letters of attributes, what Rowen does not have and why, and differences from
//! LVM.

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
                        merge waits, (t) thin pool, (V) thin volume. A sparse volume is an (s), too.",
            ),
            ("2 permission", "(w) writable, (r) read-only, (R) activated read-only: read_only_volume_list."),
            ("3 allocation", "(i) as the group has it."),
            ("4 minor number", "(-) never fixed."),
            ("5 state", "(a) active, (-) inactive, (I) a snapshot that outgrew its size."),
            ("6 device", "(o) in use."),
            ("7 target", "(s) snapshot or origin, (t) thin."),
            ("8 zero", "(z) new space reads as zeros. It does in all volumes; LVM shows the letter for thin ones."),
            ("9 health", "(D) a full thin pool; in a group that has stopped (F) what is thin and (X) everything else."),
            ("10 skip", "(k) activation skips it unless -K is given."),
        ],
    },
    Note {
        command: "vgs",
        title: "ATTRIBUTES",
        terms: &[
            ("1 permission", "(w) writable, (r) the group has stopped: rowen status says why."),
            ("2 resizable", "(z) physical volumes may be added."),
            ("3 exported", "(x) nothing may be activated."),
            ("4 partial", "(p) it goes on without a physical volume that is missing."),
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
            ("3 missing", "(m) if the group goes on without it."),
        ],
    },
    Note {
        command: "status",
        title: "STATES",
        terms: &[
            ("serving", "A server has the group open."),
            ("not running", "Nothing of it is active, and no server runs."),
            (
                "opening, taking over",
                "A server opens the group: wrong if it takes longer than 10 s or fails three times.",
            ),
            ("waiting for space", "Writes wait for room."),
            ("waiting for a disk", "A disk has had requests for 15 s and answered none."),
            ("stopped", "A flush or the journal failed: nothing is written before the group is opened again."),
            ("not answering", "The server's process is there and silent."),
            ("killed", "Server and keeper are gone, and devices are left, which return errors."),
            ("incomplete", "No server has it, and a physical volume is missing."),
            ("cannot be opened", "Labels contradict each other."),
            ("of another version", "The server was not replaced in an upgrade."),
        ],
    },
    Note {
        command: "lvcreate",
        title: "SNAPSHOTS",
        terms: &[
            (
                "with a size",
                "That much space is reserved. When it is used up, the snapshot becomes invalid and the origin is not \
                 affected. The snapshot is removed with its origin. This is LVM's copy-on-write snapshot, without the copying.",
            ),
            (
                "without a size",
                "The snapshot shares the group's free space and outlives its origin. LVM needs a thin pool for \
                                that.",
            ),
        ],
    },
];

/// Features of LVM that Rowen does not have, and why.
pub const REFUSED: &[(&str, &str)] = &[
    (
        "raid0, raid10, raid4, raid5, raid6, cache, writecache, vdo, integrity types",
        "Volumes are linear, striped (instead of raid0), or mirrored on two disks (raid1). Put parity below the physical volumes (md, hardware).",
    ),
    ("more than two copies", "A volume has one copy or two: `lvconvert -m1` and `-m0` change that in use."),
    (
        "`lvconvert --splitmirrors`; `lvchange --resync`, `--rebuild`, `--writemostly`",
        "A snapshot keeps what a volume has now. Copies are made equal by themselves, after a crash and when a disk comes \
         back; `lvconvert --repair` makes lost ones anew. The copies have no volumes of their own: `lvs -a` shows no \
         `rimage` and no `rmeta`, and `devices` names the disks of both.",
    ),
    (
        "`lvchange --minrecoveryrate`, `--maxrecoveryrate`, `--writebehind`",
        "Copies are made equal beside the other work, and a write is done when both copies have it.",
    ),
    (
        "mirrored thin pools",
        "Thin volumes have one copy of their data, unless they are snapshots of a mirrored volume.",
    ),
    (
        "`lvconvert --splitsnapshot`, `--type snapshot --zero n`",
        "A snapshot has no store of its own that could be used again.",
    ),
    (
        "`lvconvert --type thin` of a volume that is in use",
        "The contents move to another volume. Close the volume first.",
    ),
    (
        "`pvmove --atomic`",
        "Extents move in runs of 256 MiB at the most, and what was moved stays where it is. A pvmove the other way brings it back.",
    ),
    (
        "`vgsplit`, `vgmerge`, `vgimportclone`",
        "A group has one tree of blocks over all its physical volumes, which cannot be cut or joined.",
    ),
    ("`--persistent`, `--major`, `--minor`", "The loop driver assigns device numbers."),
    (
        "`lvmlockd`, `--lockstart`, shared groups, system IDs",
        "A group is open on one machine, which holds its devices exclusively.",
    ),
    (
        "profiles; most of `lvm.conf`",
        "Rowen's settings are in rowen.conf (docs/operations.md), under LVM's names where LVM has them. \
         `lvmconfig --list` lists them. Rowen reads an `lvm.conf` only from the directory in \
         `LVM_SYSTEM_DIR`.",
    ),
    (
        "`lvmdump`, `lvmsar`, `lvmsadc`",
        "They diagnose the kernel's device-mapper, which Rowen does not use. `rowen check` and `rowen stats` report \
         on a group, `rowen status` says whether all is well, and `rowen support-bundle` gathers what a helper needs.",
    ),
    ("`and`, `or` as words in `-S`", "LVM does not accept them either: use `&&` or `,`, and `||` or `#`."),
];

/// Differences from LVM.
pub const DIFFERENCES: &[(&str, &str)] = &[
    (
        "a snapshot copies a chunk on its first write (`-c`)",
        "Nothing is copied. `-c` (4k to 512k) says how much contiguous space the first write into a chunk keeps for \
         its neighbours. A pool's chunk may be any multiple of 64k; it counts as a power of two.",
    ),
    (
        "an origin never moves, and is read in one piece",
        "It lies in pieces where it was overwritten in part. When its snapshots are gone, a server brings it back \
         to one place; while they are held, only with the tag `layout=read` \
         ([operations.md](operations.md#laid-out-for-reading)).",
    ),
    ("a snapshot without `-L` needs a thin pool", "It shares the group's free space."),
    ("`lvcreate -s -L`: full means invalid", "The same: the snapshot becomes invalid, and its origin is not affected."),
    ("removing an origin removes its snapshots", "Snapshots with a size are removed, as in LVM. The others stay."),
    (
        "a thin pool has metadata to size and repair",
        "`lvcreate -T` is accepted. A pool's size limits what its volumes hold together, and reserves no space for \
         them. Writes beyond the limit wait a minute and then fail, as in LVM, or fail at once. `metadata_percent` \
         is the share of the group that metadata takes. A pool cannot be made larger than it could be filled: \
         `lvextend` counts as free only what the pool's size does not claim already.",
    ),
    (
        "a sparse volume (`lvcreate --type snapshot -V`) has a store of `-L`, and is full with it",
        "It takes space of the group when it is written to; `-L` limits nothing. Its size is the virtual one, and it \
         has no `[..._vorigin]`.",
    ),
    (
        "`lv_health_status`, and letter 9 of `lv_attr`",
        "After a failed flush, or a journal that can be written nowhere, a group stops until it is opened again: then \
         `failed` (F) for thin volumes and pools, `unknown` (X) for the others, and `r` in `vg_attr`. `rowen status` says why.",
    ),
    (
        "`--activationmode`: `degraded` unless it is said",
        "`complete`: a group goes on without a physical volume only when a command says `degraded` or `partial` (`-P`), and \
         never without the one with the journal. From then on it waits for it no more. `--force` beside it: also where this host has \
         seen a newer state of the group.",
    ),
    (
        "volumes under `pvmove` are locked (`-wI-`), and lie on `pvmove0`",
        "They are not locked, and lie where they are. `lvs -a` shows `[pvmove0]` with the source and how far it is; it has no device.",
    ),
    (
        "a physical volume that was missing counts again when it is there and nothing of a volume lies on it",
        "It is taken back by `vgextend --restoremissing` alone, which also proves that it is as it left.",
    ),
    (
        "`lvremove` frees before it returns",
        "It returns at once. The space comes back in the background; a command that needs it waits.",
    ),
    ("a PV is a block device", "A PV is a block device or a file."),
    (
        "`pvresize`",
        "The same, for any PV of a group in use. To make it smaller, its end must be free; metadata moves away from \
         there. A size beyond the device's is refused. In groups that were made by earlier versions only the last PV \
         has room to grow.",
    ),
    (
        "`pvchange -x n`: no new extents from this PV",
        "The same, also for redirected blocks and metadata; the journal stays where it is. `vg_free` includes what \
         is free there, as in LVM. Warnings and refusals count only what can be allocated. The change is refused \
         while snapshots with a size have reserved space there and the other PVs have too little.",
    ),
    (
        "`lvcreate ... VG PV[:PE[-PE]]`, `lvextend ... LV PV`",
        "The same for thick volumes: their extents are taken only from there. Blocks that are redirected around a \
         snapshot later go where the group has room. Thin volumes, pools and snapshots take their blocks when they \
         are written to: for them, a choice that leaves out a physical volume is refused.",
    ),
    ("`--sharedstore` (a later patch set)", "Accepted without effect: every snapshot shares."),
    (
        "`devices`, `seg_pe_ranges`, `pvs --segments`: exact extents",
        "Blocks are where the last write put them. A volume has one segment for each physical volume that it is on, \
         named by the extent with its first block there. For a volume that was never redirected this is exact. Of a \
         volume in very many pieces, reports read the first 64 leaves of its map. A volume without a block is shown \
         at the group's first extent.",
    ),
    (
        "`pool_tdata`, `pool_tmeta`, `lvol0_pmspare`",
        "Rowen has no such volumes. `-a` adds only snapshots that wait to be merged; `data_lv` and `metadata_lv` are \
         blank.",
    ),
    ("`--reportformat json_std` since 2.03.17", "Available."),
    (
        "`vgcfgrestore` gives back volumes that were removed",
        "A copy of the metadata holds names and properties, not where the data is. Removed volumes are named and \
         refused; sizes stay.",
    ),
    (
        "`archive/` holds a copy from before each command",
        "The copy from before is moved there when the next one is written. Commands in fast succession share one.",
    ),
];
