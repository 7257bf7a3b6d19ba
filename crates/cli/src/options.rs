//! The table of all options: names, kind of value and meaning. A command's entry in the table of commands lists its
//! options. A letter may stand for different options in different commands, as in LVM.

/// The syntax of an option's value. The parser refuses anything else, so commands can rely on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It takes no value.
    Flag,
    /// A size; the letter is the unit of a bare number.
    Size(char),
    /// A size, perhaps with a sign.
    Change(char),
    Extents,
    ExtentsChange,
    YesNo,
    /// A whole number, zero or more.
    Number,
    /// The same, perhaps with a sign.
    SignedNumber,
    /// `auto`, `none` or a number.
    ReadAhead,
    /// `y`, `n` and their forms: `ay`, `ey`, `sy`, `ly`, `aly`, `ln`...
    Activation,
    Permission,
    Tag,
    Units,
    /// One of these words.
    Word(&'static [&'static str]),
    /// Any text. Help calls it by this word.
    Text(&'static str),
    /// Settings in the syntax of LVM's configuration.
    Config,
}

impl Opt {
    /// Whether the option can be repeated.
    pub fn may_repeat(self) -> bool {
        use Opt::*;
        matches!(
            self,
            AddTag | DelTag | Fields | Sort | Select | ConfigReport | Devices | Rebuild | WriteMostly | ReplacePv // what they name adds up
                | Force | Verbose | Debug | Quiet // more of it
        )
    }
}

impl Kind {
    /// How help shows the value.
    pub fn shown(self) -> String {
        match self {
            Kind::Flag => String::new(),
            Kind::Size(unit) => format!("Size[{unit}|UNIT]"),
            Kind::Change(unit) => format!("[+|-]Size[{unit}|UNIT]"),
            Kind::Extents => "Number[%VG|FREE|PVS|ORIGIN]".to_owned(),
            Kind::ExtentsChange => "[+|-]Number[%VG|FREE|PVS|LV|ORIGIN]".to_owned(),
            Kind::YesNo => "y|n".to_owned(),
            Kind::Number => "Number".to_owned(),
            Kind::SignedNumber => "[+|-]Number".to_owned(),
            Kind::ReadAhead => "auto|none|Number".to_owned(),
            Kind::Activation => "y|n|ay".to_owned(),
            Kind::Permission => "rw|r".to_owned(),
            Kind::Tag => "Tag".to_owned(),
            Kind::Units => "[Number]r|R|h|H|b|B|s|S|k|K|m|M|g|G|t|T|p|P|e|E".to_owned(),
            Kind::Word(words) => words.join("|"),
            Kind::Text(what) => what.to_owned(),
            Kind::Config => "String".to_owned(),
        }
    }
}

/// An option's entry.
pub struct Spec {
    pub id: Opt,
    pub short: Option<char>,
    pub long: &'static str,
    pub kind: Kind,
    pub help: &'static str,
}

macro_rules! options {
    ($($id:ident $short:expr, $long:literal, $kind:expr, $help:literal;)*) => {
        /// Identifies an option.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Opt { $($id),* }

        impl Opt {
            /// The option's entry.
            pub fn spec(self) -> &'static Spec {
                match self {
                    $(Opt::$id => {
                        const SPEC: Spec = Spec { id: Opt::$id, short: $short, long: $long, kind: $kind, help: $help };
                        &SPEC
                    })*
                }
            }
        }
    };
}

/// The kinds of volume that can be created. LVM's others are refused with a reason. What `--type` of lvmconfig takes.
const CONFIG_TYPES: &[&str] = &["current", "default", "diff", "full", "list", "missing", "new"];

pub const TYPES: &[&str] = &["linear", "striped", "raid1", "mirror", "snapshot", "thin", "thin-pool"];
const ALL_TYPES: &[&str] = &[
    "linear",
    "striped",
    "snapshot",
    "thin",
    "thin-pool",
    "zero",
    "error",
    "mirror",
    "raid",
    "raid0",
    "raid0_meta",
    "raid1",
    "raid10",
    "raid10_near",
    "raid4",
    "raid5",
    "raid5_n",
    "raid5_la",
    "raid5_ls",
    "raid5_ra",
    "raid5_rs",
    "raid6",
    "raid6_n_6",
    "raid6_nc",
    "raid6_nr",
    "raid6_zr",
    "raid6_ls_6",
    "raid6_rs_6",
    "raid6_la_6",
    "raid6_ra_6",
    "cache",
    "cache-pool",
    "vdo",
    "vdo-pool",
    "writecache",
    "integrity",
];
const POLICIES: &[&str] = &["normal", "contiguous", "cling", "cling_by_tags", "anywhere", "inherit"];

options! {
    Help Some('h'), "help", Kind::Flag, "Show this help.";
    LongHelp None, "longhelp", Kind::Flag, "Show this help.";
    Version None, "version", Kind::Flag, "Show the version.";
    Verbose Some('v'), "verbose", Kind::Flag, "Say more.";
    Debug Some('d'), "debug", Kind::Flag, "Accepted for LVM's clients; does nothing.";
    Quiet Some('q'), "quiet", Kind::Flag, "Twice: leave out messages of success.";
    Yes Some('y'), "yes", Kind::Flag, "Answer every question with yes.";
    Test Some('t'), "test", Kind::Flag, "Check the command and change nothing.";
    Config None, "config", Kind::Config, "Settings for this command, over those of rowen.conf.";
    Profile None, "profile", Kind::Text("String"), "Accepted for LVM's clients; does nothing.";
    CommandProfile None, "commandprofile", Kind::Text("String"), "Accepted for LVM's clients; does nothing.";
    DriverLoaded None, "driverloaded", Kind::YesNo, "Accepted for LVM's clients; does nothing.";
    NoLocking None, "nolocking", Kind::Flag, "Accepted for LVM's clients; does nothing.";
    NoHints None, "nohints", Kind::Flag, "Accepted for LVM's clients; does nothing.";
    MetadataCopies None, "metadatacopies", Kind::Word(&["0", "1", "2"]), "Accepted for LVM's clients; does nothing.";
    GroupMetadataCopies None, "metadatacopies", Kind::Text("all|unmanaged|Number"), "Accepted for LVM's clients; does nothing.";
    NoUdevSync None, "noudevsync", Kind::Flag, "Accepted for LVM's clients; does nothing.";
    AutoBackup Some('A'), "autobackup", Kind::YesNo, "Keep a copy of the metadata after the change (the default).";
    AddDev None, "adddev", Kind::Text("PV"), "Add the physical volume at this path to the devices file.";
    DelDev None, "deldev", Kind::Text("PV"), "Remove this path from the devices file; the physical volume does not change.";
    File Some('f'), "file", Kind::Text("String"), "The file of the copy, instead of the usual one; %s is the group's name.";
    List Some('l'), "list", Kind::Flag, "List the copies that there are, oldest first.";
    ForceLong None, "force", Kind::Flag, "Restore what can be restored although volumes are gone.";
    Journal None, "journal", Kind::Text("String"), "Accepted for LVM's clients; does nothing.";
    LockOptions None, "lockopt", Kind::Text("String"), "Accepted for LVM's clients; does nothing.";
    Devices None, "devices", Kind::Text("PV"), "Accepted for LVM's clients; does nothing.";
    DevicesFile None, "devicesfile", Kind::Text("String"), "Accepted for LVM's clients; does nothing.";
    Monitor None, "monitor", Kind::YesNo, "Accepted for LVM's clients; does nothing.";
    IgnoreMonitoring None, "ignoremonitoring", Kind::Flag, "Accepted for LVM's clients; does nothing.";
    ReadOnlyView None, "readonly", Kind::Flag, "Accepted for LVM's clients; reports never write.";

    SysInit None, "sysinit", Kind::Flag, "Accepted for LVM's clients; does nothing.";
    Poll None, "poll", Kind::YesNo, "Accepted for LVM's clients: nothing is polled.";
    ActivationMode None, "activationmode", Kind::Word(&["partial", "degraded", "complete"]),
        "complete (usual): with all physical volumes; degraded: without those that are missing; partial: also volumes that lost something. With --force also where this host has seen a newer state of the group.";
    Alloc None, "alloc", Kind::Word(POLICIES), "Kept and shown for groups; space is placed as it comes.";
    Contiguous Some('C'), "contiguous", Kind::YesNo, "Accepted for LVM's clients; does nothing.";
    ReadAhead Some('r'), "readahead", Kind::ReadAhead, "Accepted for LVM's clients; does nothing.";
    Persistent Some('M'), "persistent", Kind::YesNo, "Accepted for LVM's clients: device numbers are the kernel's to give.";
    Major Some('j'), "major", Kind::Number, "Accepted for LVM's clients; does nothing.";
    Minor None, "minor", Kind::Number, "Accepted for LVM's clients; does nothing.";
    MetadataProfile None, "metadataprofile", Kind::Text("String"), "Accepted for LVM's clients; does nothing.";
    DetachProfile None, "detachprofile", Kind::Flag, "Accepted for LVM's clients; does nothing.";
    NoHistory None, "nohistory", Kind::Flag, "Accepted for LVM's clients; does nothing.";
    Background Some('b'), "background", Kind::Flag, "Accepted for LVM's clients: what takes long is in the background anyway.";
    Interval Some('i'), "interval", Kind::Number, "Accepted for LVM's clients; does nothing.";
    WriteOut None, "writeout", Kind::Flag, "Write zeros to all of a file that has no room yet: writes to it are faster then.";
    Abort None, "abort", Kind::Flag, "End the move of extents.";
    MoveBackground Some('b'), "background", Kind::Flag, "Do not wait for the end.";
    MoveAtomic None, "atomic", Kind::Flag, "Refused: what was moved stays where it is.";
    MoveInterval Some('i'), "interval", Kind::Number, "Seconds between two lines that show how far it is (15); 0: none.";
    Force Some('f'), "force", Kind::Flag, "Do not ask; given twice, override a check.";
    Zero Some('Z'), "zero", Kind::YesNo, "Accepted for LVM's clients: new volumes always read as zeros.";
    WipeSignatures Some('W'), "wipesignatures", Kind::YesNo,
        "Accepted for LVM's clients: new volumes never show old data.";
    PvMetadataSize None, "metadatasize", Kind::Size('m'), "Accepted for LVM's clients: metadata grows by itself.";
    DataAlignment None, "dataalignment", Kind::Size('k'), "Accepted for LVM's clients; does nothing.";
    ExtentSize Some('s'), "physicalextentsize", Kind::Size('m'), "Size of an extent: a power of two from 1 MiB (default 4 MiB).";

    DataAlignmentOffset None, "dataalignmentoffset", Kind::Size('k'), "Accepted for LVM's clients; does nothing.";
    BootAreaSize None, "bootloaderareasize", Kind::Size('m'), "Accepted for LVM's clients; does nothing.";
    LabelSector None, "labelsector", Kind::Number, "Accepted for LVM's clients; does nothing.";
    MetadataType Some('M'), "metadatatype", Kind::Word(&["lvm2", "2"]), "Accepted for LVM's clients; does nothing.";
    MetadataIgnore None, "metadataignore", Kind::YesNo, "Accepted for LVM's clients; does nothing.";
    PvMetadataCopies None, "pvmetadatacopies", Kind::Word(&["0", "1", "2"]), "Accepted for LVM's clients; does nothing.";
    VgMetadataCopies None, "vgmetadatacopies", Kind::Text("all|unmanaged|Number"), "1: the journal is kept once. Otherwise twice, on two physical volumes, where there is room. Other metadata is always kept twice.";
    NoRestoreFile None, "norestorefile", Kind::Flag, "Accepted for LVM's clients; does nothing.";
    Clustered Some('c'), "clustered", Kind::YesNo, "Accepted for LVM's clients: a group belongs to one host.";
    MaxVolumes Some('l'), "maxlogicalvolumes", Kind::Number, "Most logical volumes in the group; 0: no limit.";
    MaxVolumesChange Some('l'), "logicalvolume", Kind::Number, "Most logical volumes in the group; 0: no limit.";
    MaxPvs Some('p'), "maxphysicalvolumes", Kind::Number, "Most physical volumes in the group; 0: no limit.";
    Resizeable Some('x'), "resizeable", Kind::YesNo, "Whether physical volumes may join and leave.";
    NewUuid Some('u'), "uuid", Kind::Flag, "Refused: identifiers stay.";
    SystemId None, "systemid", Kind::Text("String"), "Refused: groups have no system ID.";
    LockStart None, "lockstart", Kind::Flag, "Accepted for LVM's clients; does nothing.";
    LockStop None, "lockstop", Kind::Flag, "Accepted for LVM's clients; does nothing.";
    LockType None, "locktype", Kind::Word(&["none"]), "Accepted for LVM's clients; does nothing.";
    Allocatable Some('x'), "allocatable", Kind::YesNo, "With n no more space is allocated on it; its contents stay.";
    AllPvs Some('a'), "all", Kind::Flag, "All physical volumes.";
    AllGroups Some('a'), "all", Kind::Flag, "All volume groups.";
    AllEmpty Some('a'), "all", Kind::Flag, "All physical volumes that nothing uses.";
    RemoveMissing None, "removemissing", Kind::Flag, "Remove missing physical volumes; by force also the volumes that lost data with them.";
    RestoreMissing None, "restoremissing", Kind::Flag, "Take a physical volume back that was missing, if it is as it left.";
    MirrorsOnly None, "mirrorsonly", Kind::Flag, "Accepted for LVM's clients: mirrored volumes always stay.";
    PvSizeLimit None, "setphysicalvolumesize", Kind::Size('m'), "Use this much of the device.";
    UpdateMetadata None, "updatemetadata", Kind::Flag, "Write the metadata again.";
    ConfigType None, "type", Kind::Word(CONFIG_TYPES), "Which: those in force, all defaults, what differs, everything, names, what is not set.";
    TypeConfig None, "typeconfig", Kind::Word(CONFIG_TYPES), "As --type.";
    ListSettings None, "list", Kind::Flag, "The names of all settings.";
    Validate None, "validate", Kind::Flag, "Only check that the files can be read.";
    MergedConfig None, "mergedconfig", Kind::Flag, "Accepted for LVM's clients: settings are always shown as they lie over each other.";

    Name Some('n'), "name", Kind::Text("String"), "Name of the new logical volume.";
    Size Some('L'), "size", Kind::Size('m'), "Size of the new volume, or space set aside for the new snapshot.";
    NewSize Some('L'), "size", Kind::Change('m'), "New size, or with + or - the change.";
    Extents Some('l'), "extents", Kind::Extents, "The size in extents, or a share in percent.";
    NewExtents Some('l'), "extents", Kind::ExtentsChange, "The new size in extents, or a share in percent; with + or - the change.";
    VirtualSize Some('V'), "virtualsize", Kind::Size('m'), "Size of the new thin volume; it takes space as it is written.";
    Snapshot Some('s'), "snapshot", Kind::Flag, "Make a snapshot of the named volume.";
    Thin Some('T'), "thin", Kind::Flag, "Make a thin volume, a thin pool, or both.";
    ThinPool None, "thinpool", Kind::Text("LV"), "The thin pool to make, or to make the volume in.";
    Type None, "type", Kind::Word(ALL_TYPES), "What to make: linear, striped (with --stripes), raid1 or mirror (two copies on two physical volumes), snapshot, thin or thin-pool; others are refused.";
    ChunkSize Some('c'), "chunksize", Kind::Size('k'),
        "Contiguous space that the first write to a shared chunk reserves (4k to 512k).";
    MorePoolMetadata None, "poolmetadatasize", Kind::Change('m'), "Accepted for LVM's clients: metadata grows by itself.";
    PoolMetadataSize None, "poolmetadatasize", Kind::Size('m'), "Accepted for LVM's clients: metadata grows by itself.";
    SharedStore None, "sharedstore", Kind::Text("Name"), "Accepted: snapshots share the group's free space without a store.";
    SectorSize None, "sectorsize", Kind::Word(&["512", "4096"]), "Bytes in a sector of the new device (default 512).";
    Permission Some('p'), "permission", Kind::Permission, "Read-only or writable.";
    Activate Some('a'), "activate", Kind::Activation, "Make (y) or remove (n) the block device.";
    IgnoreSkip Some('K'), "ignoreactivationskip", Kind::Flag, "Also activate volumes that are marked to be skipped.";
    SetSkip Some('k'), "setactivationskip", Kind::YesNo, "Mark the volume to be skipped by activation.";
    SetAuto None, "setautoactivation", Kind::YesNo, "Activate the volume when the group is activated at boot.";
    AddTag None, "addtag", Kind::Tag, "Add a tag; may be given more than once.";
    DelTag None, "deltag", Kind::Tag, "Remove a tag; may be given more than once.";
    Refresh None, "refresh", Kind::Flag, "Carry out a merge that waits, where nothing is open; else devices are always up to date.";
    NoFsck Some('n'), "nofsck", Kind::Flag, "With -r: do not check the filesystem first.";
    FilesystemMode None, "fs", Kind::Word(&["ignore", "resize", "resize_fsadm"]), "ignore: leave the filesystem alone; resize: as -r.";
    Merge None, "merge", Kind::Flag, "Give the origin the snapshot's contents and remove the snapshot.";
    MergeSnapshot None, "mergesnapshot", Kind::Flag, "The same as --merge.";
    MergeThin None, "mergethin", Kind::Flag, "The same as --merge.";
    MakeCache Some('H'), "cache", Kind::Flag, "Refused: there are no caches.";
    CachePool None, "cachepool", Kind::Text("LV"), "Refused: there are no caches.";
    CacheVol None, "cachevol", Kind::Text("LV"), "Refused: there are no caches.";
    CacheDevice None, "cachedevice", Kind::Text("PV"), "Refused: there are no caches.";
    CacheMode None, "cachemode", Kind::Text("String"), "Refused: there are no caches.";
    CachePolicy None, "cachepolicy", Kind::Text("String"), "Refused: there are no caches.";
    CacheSettings None, "cachesettings", Kind::Text("String"), "Refused: there are no caches.";
    SplitCache None, "splitcache", Kind::Flag, "Refused: there are no caches.";
    Uncache None, "uncache", Kind::Flag, "Refused: there are no caches.";
    Compression None, "compression", Kind::YesNo, "Refused: there is no VDO.";
    Deduplication None, "deduplication", Kind::YesNo, "Refused: there is no VDO.";
    VdoSettings None, "vdosettings", Kind::Text("String"), "Refused: there is no VDO.";
    VdoPool None, "vdopool", Kind::Text("LV"), "Refused: there is no VDO.";
    MergeMirrors None, "mergemirrors", Kind::Flag, "Refused: no copy was split off a mirror.";
    SplitMirrors None, "splitmirrors", Kind::Number, "Refused: take a snapshot.";
    TrackChanges None, "trackchanges", Kind::Flag, "Refused with --splitmirrors.";
    ReplacePv None, "replace", Kind::Text("PV"), "Move the copy of a mirrored volume that is on this physical volume to another one, in use.";
    SplitSnapshot None, "splitsnapshot", Kind::Flag, "Refused: a snapshot has no store that could be without its origin.";
    OriginName None, "originname", Kind::Text("LV"), "Name of the volume that the old contents stay in.";
    PoolMetadata None, "poolmetadata", Kind::Text("LV"), "A volume that goes into the pool: its contents and its name go.";
    Repair None, "repair", Kind::Flag, "Give a mirrored volume its second copy again after vgreduce --removemissing. Refused for others: see rowen check.";
    StartPoll None, "startpoll", Kind::Flag, "Accepted for LVM's clients: nothing is polled.";
    Stripes Some('i'), "stripes", Kind::Number, "Physical volumes between which the blocks of the volume alternate (1 to 32). All striped volumes of a group have the same number, and the same stripesize.";
    ConvertStripes None, "stripes", Kind::Number, "1, or as many as the volume has: a conversion changes no stripes.";
    StripeSize Some('I'), "stripesize", Kind::Size('k'), "What follows each other on one physical volume of a striped volume: a power of two from 4k to one extent (default 64k).";
    Mirrors Some('m'), "mirrors", Kind::SignedNumber, "Copies besides the first: 1 for a mirrored volume, 0 for a linear one. lvconvert changes it.";
    MirrorLog None, "mirrorlog", Kind::Word(&["core", "disk"]), "Accepted for LVM's clients: what has to be compared after a crash is always kept on the disks.";
    NoSync None, "nosync", Kind::Flag, "Accepted for LVM's clients: new mirrored volumes are in sync at once.";
    RegionSize Some('R'), "regionsize", Kind::Size('m'), "Accepted for LVM's clients: regions of mirrors have 4 MiB.";
    RaidIntegrity None, "raidintegrity", Kind::YesNo, "Refused for mirrored volumes: data has no checksums.";
    Resync None, "resync", Kind::Flag, "Refused: copies are made equal by themselves.";
    SyncAction None, "syncaction", Kind::Word(&["check", "repair", "idle"]), "Of a mirrored volume: compare the two copies of what it and its snapshots have written (check), compare them and make them equal (repair), or end that (idle). lvs shows the action, how much is done, and the differences.";
    Rebuild None, "rebuild", Kind::Text("PV"), "Refused: copies are made equal by themselves.";
    WriteMostly None, "writemostly", Kind::Text("PV[:t|n|y]"), "Refused: both copies are read.";
    WriteBehind None, "writebehind", Kind::Number, "Refused: a write is done when both copies have it.";
    MinRecoveryRate None, "minrecoveryrate", Kind::Size('k'), "Refused: copies are made equal beside the other work.";
    MaxRecoveryRate None, "maxrecoveryrate", Kind::Size('k'), "Refused: copies are made equal beside the other work.";
    Discards None, "discards", Kind::Word(&["passdown", "nopassdown", "ignore"]), "Accepted for LVM's clients: what is discarded is passed down; the tag discards=nopassdown on a volume keeps it from the disks.";
    ErrorWhenFull None, "errorwhenfull", Kind::YesNo, "Of a pool: whether writes fail (y) or wait (n) when it or the group is full.";
    PoolMetadataSpare None, "poolmetadataspare", Kind::YesNo, "Accepted for LVM's clients; does nothing.";
    UsePolicies None, "usepolicies", Kind::Flag, "Extend a snapshot with a size, or a thin pool, as the settings activation/..._autoextend_... say.";
    ResizeFs Some('r'), "resizefs", Kind::Flag, "Resize the filesystem with the volume: ext2/3/4, xfs, btrfs.";
    Suffix None, "suffix", Kind::Text("String"), "Ending of the snapshots' names; instead of the time (UTC), where they are made.";

    All Some('a'), "all", Kind::Flag, "Snapshots that wait to be merged, too; devices that are no physical volume, too.";
    Partial Some('P'), "partial", Kind::Flag, "Activate also volumes that lost something with a physical volume; reports list them anyway.";
    History Some('H'), "history", Kind::Flag, "Accepted for LVM's clients: removed volumes are not listed.";
    Foreign None, "foreign", Kind::Flag, "Accepted for LVM's clients: groups are bound to no host.";
    SharedGroup None, "shared", Kind::Flag, "Refused: a group is open on one host.";
    Shared None, "shared", Kind::Flag, "Accepted for LVM's clients: groups are shared with no host.";
    IgnoreLockingFailure None, "ignorelockingfailure", Kind::Flag, "Accepted for LVM's clients; does nothing.";
    IgnoreSkippedCluster None, "ignoreskippedcluster", Kind::Flag, "Accepted for LVM's clients; does nothing.";
    TrustCache None, "trustcache", Kind::Flag, "Accepted for LVM's clients; does nothing.";
    Fields Some('o'), "options", Kind::Text("String"),
        "Fields to show, separated by commas; + before the first adds them to the usual ones, - takes them away.";
    Sort Some('O'), "sort", Kind::Text("String"), "Fields to sort by; - before a field reverses.";
    Select Some('S'), "select", Kind::Text("String"), "Only what meets these criteria; -S help tells how to write them.";
    NoHeadings None, "noheadings", Kind::Flag, "Leave out the line of headings.";
    Headings None, "headings", Kind::Word(&["none", "abbrev", "full", "0", "1", "2"]), "Headings: none, short ones, or the fields' names.";
    Separator None, "separator", Kind::Text("String"), "Text between fields, instead of alignment.";
    Aligned None, "aligned", Kind::Flag, "Align columns, also with --separator.";
    Rows None, "rows", Kind::Flag, "Show columns as rows.";
    Binary None, "binary", Kind::Flag, "Show flags as 1, 0, and -1 where unknown, instead of words.";
    UnitsShown None, "units", Kind::Units, "Unit of sizes: r and h pick one; upper case is powers of 1000.";
    NoSuffix None, "nosuffix", Kind::Flag, "Leave out the letters of units.";
    Unbuffered None, "unbuffered", Kind::Flag, "Do not sort.";
    NamePrefixes None, "nameprefixes", Kind::Flag, "Show LVM2_FIELD='value'.";
    Unquoted None, "unquoted", Kind::Flag, "With --nameprefixes: no quotes.";
    ReportFormat None, "reportformat", Kind::Word(&["basic", "json", "json_std"]), "Form of the report; in json_std numbers are numbers.";
    ConfigReport None, "configreport", Kind::Word(&["log", "vg", "lv", "pv", "pvseg", "seg"]),
        "The -o, -O and -S that follow are about this part of the report.";
    LogOnly None, "logonly", Kind::Flag, "Show only the log of the command, which is empty.";
    Segments None, "segments", Kind::Flag, "A row for each segment.";
    Colon Some('c'), "colon", Kind::Flag, "One line for each, fields separated by colons.";
    Columns Some('C'), "columns", Kind::Flag, "As a report in columns.";
    Short Some('s'), "short", Kind::Flag, "One line for each.";
    Maps Some('m'), "maps", Kind::Flag, "Also where everything lies.";
    ActiveGroups Some('A'), "activevolumegroups", Kind::Flag, "Only groups with an active volume.";
    BlockDevice Some('b'), "blockdevice", Kind::Flag, "Accepted for LVM's clients; does nothing.";
    ExportedOnly Some('e'), "exported", Kind::Flag, "Only physical volumes of exported groups.";
    FreeOnly Some('n'), "novolumegroup", Kind::Flag, "Only physical volumes of no group.";
    ShowUuid Some('u'), "uuid", Kind::Flag, "Show identifiers, too.";
    Cache None, "cache", Kind::Flag, "Tell which devices are there, as udev rules ask.";
    MakeNodes None, "mknodes", Kind::Flag, "Accepted for LVM's clients: nodes are always there.";
    ListGroup None, "listvg", Kind::Flag, "Show the group of the device.";
    OnlyCheck None, "check", Kind::Flag, "Only say whether it can be done.";
    Unhealthy Some('x'), "unhealthy", Kind::Flag, "Only groups with which something is wrong.";
    Listen None, "listen", Kind::Text("systemd|[ADDRESS:]PORT"),
        "Answer HTTP there, until it is ended; a port alone is one of 127.0.0.1. systemd: at the socket that systemd hands over.";
    To None, "to", Kind::Text("FILE"),
        "Write them into this file every ten seconds, until it is ended; any user may read the file, which is whole at every moment.";
    Json None, "json", Kind::Flag, "As one JSON object.";
    Output None, "output", Kind::Text("FILE"), "Where the bundle goes; it must not exist yet.";
    Long Some('l'), "long", Kind::Flag, "Show who ran each command, where, and how long it took.";
    Follow Some('f'), "follow", Kind::Flag, "Go on, and print what happens from now on, until it is interrupted.";
    Latencies Some('l'), "latencies", Kind::Flag, "Show latencies: mean, median, 99th percentile and longest.";
    Allocated None, "allocated", Kind::Flag, "What one volume has: blocks that were written, and blocks that have a place and read as zeros.";
    Summary None, "summary", Kind::Flag, "Only how many bytes changed.";
    ListFormat None, "format", Kind::Word(&["table", "json", "binary", "thin-delta"]), "Form of the list: for people, for programs, in records of 16 bytes, or as thin_delta prints it.";
    SendFrom Some('i'), "from", Kind::Text("SNAPSHOT"), "Only what changed since this snapshot, which the receiver has, too.";
    Resume None, "resume", Kind::Text("TOKEN|FILE"), "Go on where a stream was cut: with what rowen receive --token printed there, or a file that has it.";
    Plain None, "plain", Kind::Flag, "Do not compress.";
    HoldName Some('n'), "name", Kind::Text("String"), "Who needs the snapshot: the name of the hold.";
    AllHolds None, "all", Kind::Flag, "All holds, whatever their names.";
    BookmarkName Some('n'), "name", Kind::Text("String"), "Name of the bookmark, if not the snapshot's.";
    RemoveBookmark None, "remove", Kind::Flag, "Remove the bookmark.";
    ListBookmarks None, "list", Kind::Flag, "List the bookmarks of the group.";
    SnapshotName Some('n'), "name", Kind::Text("String"), "Name of the snapshot that is made, if not the sender's.";
    ReceiveThin None, "thin", Kind::Flag, "A new volume takes space only where it is written to.";
    Restrict None, "restrict", Kind::Text("VG[/LV]"), "For command= in authorized_keys: do what the client of ssh asks for, if that is to receive into this group or volume.";
    ReceiveStatus None, "status", Kind::Flag, "Show what is being received, what did not come to its end, and how it goes on.";
    ReceiveToken None, "token", Kind::Flag, "Print what rowen send --resume needs to go on with what is being received for this volume.";
    ReceiveAbort None, "abort", Kind::Flag, "Give up what was received for this volume; the volume stays as it is.";
    MoveHold None, "hold", Kind::Text("NAME"), "Hold the snapshot that is made, under this name, and end this hold of older snapshots of the volume.";
    OfPolicy None, "policy", Kind::Text("NAME"), "Which policy of rowen backup made the snapshot.";
    At None, "at", Kind::Text("TIME"), "As it was at this time: \"2026-11-22 09:00\", \"yesterday\", \"2 hours ago\"; by default as in its newest snapshot.";
    RestoredName Some('n'), "name", Kind::Text("String"), "Name of the new logical volume, if not LV-restored.";
    ReplaceContents None, "replace", Kind::Flag, "Replace the contents of the volume itself; a snapshot keeps what it had.";
    SumOf None, "sum", Kind::Text("UUID"), "Read all that the snapshot with this point UUID has, too, and print its sum, by which copies are compared.";
    SumBlocks None, "blocks", Kind::Text("FROM:COUNT"), "With --sum: only so many blocks of 4 KiB, from this one on.";
    WholeGroup None, "group", Kind::Flag, "All volumes of a group, or the ones that are named, as they were at one moment.";
    Pull None, "pull", Kind::Flag, "From another host to this one.";
    Limit None, "limit", Kind::Text("RATE"), "So many bytes in a second, at most: 50m are 50 MiB.";
    DryRun None, "dryrun", Kind::Flag, "Only say what would be done.";
    RemoveAll None, "all", Kind::Flag, "Remove all that the policies do not keep, also if that is more than half of a volume's snapshots.";
    StatusFormat None, "format", Kind::Word(&["table", "json", "prometheus"]), "For people, for programs, or in the text format of Prometheus.";
    StoreVolume None, "as", Kind::Text("NAME"), "Name of the volume in the store, if not that of the snapshot's origin.";
    StorePoint Some('n'), "name", Kind::Text("NAME"), "Name of the point in the store, or of the snapshot that is made of it.";
    Whole None, "full", Kind::Flag, "All of it, also if the store has an older point.";
    Endpoint None, "endpoint", Kind::Text("URL"), "Where the service of an object store answers, if that is not its usual place.";
    Region None, "region", Kind::Text("NAME"), "The region of the bucket.";
    SingleWriter None, "singlewriter", Kind::Flag, "Take a store in which two programs can create one object. Never let two write to it at once.";
    KeyFile None, "keyfile", Kind::Text("FILE"), "The store is encrypted, and this file opens it: \"rowen store keygen FILE\" makes one.";
    NotEncrypted None, "plain", Kind::Flag, "A new store is not encrypted: who can read its objects can read the volumes.";
    CheckData None, "data", Kind::Flag, "Read all data, too.";
    Older None, "older", Kind::Text("TIME"), "Give up pushes that made no progress for so long: 12h, 3d. If it is not given, 7d.";
    Ssh Some('e'), "ssh", Kind::Text("COMMAND"), "How another host is reached, with its options: \"ssh -p 2222 -i KEY\".";
    Once None, "once", Kind::Flag, "Print one frame as text, and end.";
    ListVolumes None, "listlvs", Kind::Flag, "Show the group of the device and its volumes.";
}

/// The options of every command.
pub const COMMON: &[Opt] = &[
    Opt::Help,
    Opt::LongHelp,
    Opt::Version,
    Opt::Verbose,
    Opt::Debug,
    Opt::Quiet,
    Opt::Yes,
    Opt::Test,
    Opt::Config,
    Opt::Profile,
    Opt::CommandProfile,
    Opt::DriverLoaded,
    Opt::NoLocking,
    Opt::NoHints,
    Opt::Journal,
    Opt::LockOptions,
    Opt::Devices,
    Opt::DevicesFile,
];
