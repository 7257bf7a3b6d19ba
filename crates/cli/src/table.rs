//! The commands: names, forms, options, examples, all in one table. Parsing, help, the list of symlinks and the dispatch
//! come from it, so a command that is not here does not exist, and what is here has help.

use crate::commands::{lvchange, lvconvert, lvcreate, lvremove, lvrename, lvresize, own, pv, reports, vg, vgcfg};
use crate::failure::Result;
use crate::options::Opt::{self, *};
use crate::parse::Args;
use crate::session::Session;

/// A command's entry.
pub struct Command {
    pub name: &'static str,
    pub summary: &'static str,
    /// It has LVM's name, and may be called by it.
    pub is_lvm: bool,
    /// What may follow the options, a form each.
    pub forms: &'static [&'static str],
    pub options: &'static [Opt],
    /// Each with what it does.
    pub examples: &'static [(&'static str, &'static str)],
    pub run: fn(&mut Session<'_>, &Args) -> Result,
}

/// The options of every report, and those of one.
macro_rules! report {
    ($($own:ident),*) => {
        &[
            $($own,)*
            All,
            Fields,
            Sort,
            Select,
            NoHeadings,
            Headings,
            Separator,
            Aligned,
            Rows,
            Binary,
            UnitsShown,
            NoSuffix,
            Unbuffered,
            NamePrefixes,
            Unquoted,
            ReportFormat,
            ConfigReport,
            LogOnly,
            Partial,
            History,
            Foreign,
            Shared,
            ReadOnlyView,
            IgnoreLockingFailure,
            IgnoreSkippedCluster,
            TrustCache,
        ]
    };
}
const RESIZE: &[Opt] = &[NewSize, NewExtents, Force, NoFsck, FilesystemMode, PoolMetadataSize, AutoBackup];

impl Command {
    /// Whether it refuses to run over settings that cannot be read, as LVM's commands do. Rowen's own that look at a group or
    /// rescue it do not.
    pub fn heeds_settings(&self) -> bool {
        self.is_lvm || matches!(self.name, "snapshot" | "revert")
    }
}

/// Every command, in the order of help.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "pvcreate",
        summary: "Initialize physical volume(s) for use by Rowen",
        is_lvm: true,
        forms: &["PV ..."],
        options: &[Force, Zero, PvMetadataSize, DataAlignment],
        examples: &[("pvcreate /dev/sdb", "label a disk"), ("pvcreate /srv/pv.img", "label a file")],
        run: pv::create,
    },
    Command {
        name: "pvremove",
        summary: "Remove label(s) from physical volume(s)",
        is_lvm: true,
        forms: &["PV ..."],
        options: &[Force],
        examples: &[("pvremove /dev/sdb", "make the disk a plain disk again")],
        run: pv::remove,
    },
    Command {
        name: "pvs",
        summary: "Display information about physical volumes",
        is_lvm: true,
        forms: &["[ PV ... ]"],
        options: report!(Segments),
        examples: &[("pvs --noheadings -o pv_name,vg_name", "names alone, for a script")],
        run: reports::pvs,
    },
    Command {
        name: "lvmdevices",
        summary: "Manage the devices file",
        is_lvm: true,
        forms: &["[ --adddev PV | --deldev PV ]"],
        options: &[AddDev, DelDev],
        examples: &[
            ("lvmdevices", "the files and devices that are known as physical volumes"),
            ("lvmdevices --adddev /srv/pv.img", "a file that came from another host, or whose entry was lost"),
        ],
        run: pv::devices,
    },
    Command {
        name: "vgcreate",
        summary: "Create a volume group",
        is_lvm: true,
        forms: &["VG PV ..."],
        options: &[ExtentSize, AddTag, Force, Zero, PvMetadataSize, DataAlignment, AutoBackup],
        examples: &[
            ("vgcreate vg0 /dev/sdb /dev/sdc", "a group over two disks"),
            ("vgcreate -s 16m vg0 /srv/pv.img", "with extents of 16 MiB"),
        ],
        run: vg::create,
    },
    Command {
        name: "vgremove",
        summary: "Remove volume group(s)",
        is_lvm: true,
        forms: &["VG ..."],
        options: &[Select, Force],
        examples: &[("vgremove -f vg0", "with all its volumes, without asking")],
        run: vg::remove,
    },
    Command {
        name: "vgextend",
        summary: "Add physical volumes to a volume group",
        is_lvm: true,
        forms: &["VG PV ..."],
        options: &[Force, Zero, PvMetadataSize, DataAlignment, AutoBackup],
        examples: &[("vgextend vg0 /dev/sdd", "the volumes stay in use meanwhile")],
        run: vg::extend,
    },
    Command {
        name: "vgs",
        summary: "Display information about volume groups",
        is_lvm: true,
        forms: &["[ VG ... ]"],
        options: report!(),
        examples: &[("vgs --units b --nosuffix -o vg_size,vg_free vg0", "exact figures")],
        run: reports::vgs,
    },
    Command {
        name: "vgchange",
        summary: "Change volume groups: activation, tags",
        is_lvm: true,
        forms: &["-a y|n|ay [ VG|@Tag ... ]", "--addtag|--deltag Tag VG|@Tag ..."],
        options: &[Select, Activate, IgnoreSkip, AddTag, DelTag, Force, Monitor, IgnoreMonitoring, AutoBackup],
        examples: &[
            ("vgchange -ay vg0", "make the block devices of all volumes"),
            ("vgchange -an", "remove those of all groups"),
            ("vgchange --addtag backup vg0", "tag the group; as @backup it is then an operand of vgs, lvs and others"),
        ],
        run: vg::change,
    },
    Command {
        name: "vgcfgbackup",
        summary: "Backup volume group configuration(s)",
        is_lvm: true,
        forms: &["[ VG ... ]"],
        options: &[File],
        examples: &[
            ("vgcfgbackup vg0", "names and properties, not contents"),
            ("vgcfgbackup -f /root/%s.vg", "each group in a file of its own"),
        ],
        run: vgcfg::backup,
    },
    Command {
        name: "vgcfgrestore",
        summary: "Restore volume group configuration",
        is_lvm: true,
        forms: &["VG"],
        options: &[File, List, ForceLong, MetadataType],
        examples: &[
            ("vgcfgrestore --list vg0", "the copies that were kept, oldest first"),
            ("vgcfgrestore --test -f FILE vg0", "tell what would be changed"),
            ("vgcfgrestore -f FILE vg0", "names, tags, permissions; contents stay as they are"),
        ],
        run: vgcfg::restore,
    },
    Command {
        name: "lvcreate",
        summary: "Create a logical volume",
        is_lvm: true,
        forms: &[
            "-L Size|-l Extents [-n LV] VG",
            "-s [-L Size|-l Extents] [-n LV] VG/LV",
            "-V Size [-n LV] -T VG/POOL",
            "-L Size|-l Extents -T VG/POOL [-V Size -n LV]",
        ],
        options: &[
            Name,
            Size,
            Extents,
            VirtualSize,
            Snapshot,
            Thin,
            ThinPool,
            Type,
            ChunkSize,
            SharedStore,
            SectorSize,
            Permission,
            Activate,
            IgnoreSkip,
            SetSkip,
            SetAuto,
            AddTag,
            WipeSignatures,
            Zero,
            PoolMetadataSize,
            Force,
            Monitor,
            IgnoreMonitoring,
            AutoBackup,
        ],
        examples: &[
            ("lvcreate -L 3G -n original vg0", "a volume of 3 GiB"),
            ("lvcreate -s -n before vg0/original", "a snapshot that shares the group's free space"),
            ("lvcreate -s -L 2G -n before vg0/original", "a snapshot with 2 GiB set aside for it"),
            ("lvcreate -T -L 100G vg0/pool", "a thin pool"),
            ("lvcreate -V 10G -n web -T vg0/pool", "a thin volume in it"),
        ],
        run: lvcreate::run,
    },
    Command {
        name: "lvremove",
        summary: "Remove logical volume(s) from the system",
        is_lvm: true,
        forms: &["VG|VG/LV|@Tag ..."],
        options: &[Select, Force, AutoBackup],
        examples: &[
            ("lvremove vg0/before", "asks first when the volume is active"),
            ("lvremove -f vg0/original", "also removes its snapshots that have a size; the others stay"),
        ],
        run: lvremove::run,
    },
    Command {
        name: "lvs",
        summary: "Display information about logical volumes",
        is_lvm: true,
        forms: &["[ VG|VG/LV|@Tag ... ]"],
        options: report!(Segments),
        examples: &[
            ("lvs vg0", "the volumes of one group"),
            ("lvs -o +lv_uuid,lv_time --units g", "more columns, sizes in GiB"),
            ("lvs --reportformat json", "for a program"),
        ],
        run: reports::lvs,
    },
    Command {
        name: "fullreport",
        summary: "Display everything about volume groups and all that is in them",
        is_lvm: false,
        forms: &["[ VG|@Tag ... ]"],
        options: report!(),
        examples: &[(
            "rowen fullreport --reportformat json --configreport seg -o, vg0",
            "one document with the group, its physical volumes, volumes and their segments",
        )],
        run: reports::full,
    },
    Command {
        name: "lvextend",
        summary: "Add space to a logical volume",
        is_lvm: true,
        forms: &["-L [+]Size|-l [+]Extents VG/LV"],
        options: RESIZE,
        examples: &[
            ("lvextend -L +10G vg0/original", "10 GiB more, while it is mounted"),
            ("lvextend -l +100%FREE vg0/original", "all that is free"),
        ],
        run: lvresize::extend,
    },
    Command {
        name: "lvreduce",
        summary: "Reduce the size of a logical volume",
        is_lvm: true,
        forms: &["-L [-]Size|-l [-]Extents VG/LV"],
        options: RESIZE,
        examples: &[("lvreduce -L 5G vg0/original", "what lies beyond 5 GiB is lost")],
        run: lvresize::reduce,
    },
    Command {
        name: "lvresize",
        summary: "Resize a logical volume",
        is_lvm: true,
        forms: &["-L [+|-]Size|-l [+|-]Extents VG/LV"],
        options: RESIZE,
        examples: &[("lvresize -L 20G vg0/original", "larger or smaller")],
        run: lvresize::resize,
    },
    Command {
        name: "lvrename",
        summary: "Rename a logical volume",
        is_lvm: true,
        forms: &["VG LV LV_new", "VG/LV VG/LV_new|LV_new"],
        options: &[AutoBackup],
        examples: &[("lvrename vg0 original current", "its device is renamed with it, also while in use")],
        run: lvrename::run,
    },
    Command {
        name: "lvchange",
        summary: "Change the attributes of logical volume(s)",
        is_lvm: true,
        forms: &["VG|VG/LV|@Tag ..."],
        options: &[
            Select,
            Activate,
            IgnoreSkip,
            Permission,
            SetSkip,
            SetAuto,
            AddTag,
            DelTag,
            Refresh,
            Force,
            Monitor,
            IgnoreMonitoring,
            AutoBackup,
        ],
        examples: &[
            ("lvchange -an vg0/original", "remove its block device"),
            ("lvchange -ay -K vg0/before", "make one for a snapshot that activation skips"),
            ("lvchange -pr vg0/original", "read-only from now on"),
        ],
        run: lvchange::run,
    },
    Command {
        name: "lvconvert",
        summary: "Merge a snapshot into its origin",
        is_lvm: true,
        forms: &["--merge VG/LV ..."],
        options: &[Merge, MergeSnapshot, Force, AutoBackup],
        examples: &[("lvconvert --merge vg0/before", "the origin as it was; the snapshot is gone")],
        run: lvconvert::run,
    },
    Command {
        name: "snapshot",
        summary: "Take one atomic snapshot of many logical volumes",
        is_lvm: false,
        forms: &["VG [ LV ... ]"],
        options: &[Suffix, Permission, Activate, SetSkip, AddTag, ChunkSize],
        examples: &[
            ("rowen snapshot vg0", "of all volumes that are no snapshots, in one moment"),
            ("rowen snapshot vg0 data log --suffix nightly", "data-nightly and log-nightly"),
        ],
        run: own::snapshot,
    },
    Command {
        name: "revert",
        summary: "Give a logical volume the contents of a snapshot; all snapshots stay",
        is_lvm: false,
        forms: &["VG/LV SNAPSHOT"],
        options: &[Force],
        examples: &[("rowen revert vg0/data data-nightly", "newer snapshots stay too")],
        run: own::revert,
    },
    Command {
        name: "check",
        summary: "Verify a volume group, in use or not, without changing it",
        is_lvm: false,
        forms: &["VG"],
        options: &[],
        examples: &[("rowen check vg0", "exit code 0: sound; 5: what is wrong is listed")],
        run: own::check,
    },
    Command {
        name: "repair",
        summary: "Write damaged copies of a volume group's metadata anew from the good ones",
        is_lvm: false,
        forms: &["VG"],
        options: &[],
        examples: &[("rowen repair vg0", "what both copies have lost is told and left alone")],
        run: own::repair,
    },
    Command {
        name: "stats",
        summary: "Show the counters of a volume group's server",
        is_lvm: false,
        forms: &["VG"],
        options: &[ReportFormat],
        examples: &[("rowen stats vg0", "how many writes went in place, how many were redirected")],
        run: own::stats,
    },
    Command {
        name: "stop",
        summary: "End a volume group's server; refused while a volume is in use",
        is_lvm: false,
        forms: &["VG"],
        options: &[],
        examples: &[("rowen stop vg0", "deactivates, checkpoints and closes the group")],
        run: own::stop,
    },
    Command {
        name: "serve",
        summary: "Serve a volume group (commands start this when it is needed)",
        is_lvm: false,
        forms: &["VG"],
        options: &[],
        examples: &[("rowen serve vg0", "in the foreground, until SIGTERM")],
        run: own::serve,
    },
    Command {
        name: "udev",
        summary: "Print what udev should know about a block device",
        is_lvm: false,
        forms: &["PATH"],
        options: &[],
        examples: &[("rowen udev /dev/sdb", "what the udev rules run")],
        run: own::udev,
    },
    Command {
        name: "commands",
        summary: "List the commands that may be called by their own name",
        is_lvm: false,
        forms: &[""],
        options: &[],
        examples: &[("for c in $(rowen commands); do ln -s rowen \"$c\"; done", "what `make install` does")],
        run: own::commands,
    },
    Command {
        name: "version",
        summary: "Display software version information",
        is_lvm: false,
        forms: &[""],
        options: &[],
        examples: &[("rowen version", "also with --version after any command")],
        run: own::version,
    },
];

/// The command of this name.
pub fn find(name: &str) -> Option<&'static Command> {
    COMMANDS.iter().find(|command| command.name == name)
}
