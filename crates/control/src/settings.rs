//! The settings of `rowen.conf` and `--config`: sections and keys in LVM's syntax, with LVM's names for settings that
//! LVM has. Everything has a default, and no file is needed. [`KNOWN`] lists all settings. In Rowen's own file unknown
//! keys are refused, so that a misspelt setting is not ignored silently. In a file of LVM they are ignored, because LVM
//! has hundreds of settings about things that Rowen does not have.

use crate::config::{self, Config, Entry};
use crate::syntax::{Error, Value, wrong};
use rowen_engine::discards::Policy;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The type of a setting's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// 0 or 1.
    Switch,
    Count,
    Percent,
    /// A list of them.
    Percents,
    /// The full path of one, or nothing.
    Program,
    Latency,
    /// MiB, at least [`MIN_REQUEST_MEMORY`].
    RequestMemory,
    /// The layout of volumes.
    Layout,
    /// What is done about a disk that mirrored volumes have lost.
    FaultPolicy,
    /// A string, or a number.
    Text,
    /// A list of strings.
    Texts,
}

/// The limits of `server/request_memory`, in MiB: several requests of the largest size, and a TiB.
pub const MIN_REQUEST_MEMORY: i64 = 16;
const MAX_REQUEST_MEMORY: i64 = 1 << 20;

/// A setting that Rowen uses.
#[derive(Debug)]
pub struct Setting {
    pub path: &'static str,
    pub kind: Kind,
    /// The text of the default. None: not set.
    pub default: Option<&'static str>,
}

const fn setting(path: &'static str, kind: Kind, default: &'static str) -> Setting {
    Setting { path, kind, default: Some(default) }
}

const fn unset(path: &'static str, kind: Kind) -> Setting {
    Setting { path, kind, default: None }
}

/// All settings.
pub const KNOWN: &[Setting] = &[
    unset("activation/volume_list", Kind::Texts),
    unset("activation/auto_activation_volume_list", Kind::Texts),
    unset("activation/read_only_volume_list", Kind::Texts),
    setting("activation/monitoring", Kind::Switch, "1"),
    setting("activation/raid_fault_policy", Kind::FaultPolicy, "\"warn\""),
    setting("activation/snapshot_autoextend_threshold", Kind::Count, "100"),
    setting("activation/snapshot_autoextend_percent", Kind::Count, "20"),
    setting("activation/thin_pool_autoextend_threshold", Kind::Count, "100"),
    setting("activation/thin_pool_autoextend_percent", Kind::Count, "20"),
    setting("allocation/spare_tag", Kind::Text, "\"spare\""),
    setting("backup/backup", Kind::Switch, "1"),
    setting("backup/archive", Kind::Switch, "1"),
    setting("backup/retain_min", Kind::Count, "10"),
    setting("backup/retain_days", Kind::Count, "30"),
    setting("devices/issue_discards", Kind::Switch, "0"),
    setting("global/units", Kind::Text, "\"r\""),
    setting("global/suffix", Kind::Switch, "1"),
    setting("monitor/thresholds", Kind::Percents, "[80,90,95]"),
    setting("monitor/snapshot_threshold", Kind::Percent, "80"),
    setting("monitor/command", Kind::Program, "\"\""),
    setting("report/output_format", Kind::Text, "\"basic\""),
    setting("report/compact_output", Kind::Switch, "0"),
    setting("report/compact_output_cols", Kind::Text, "\"\""),
    setting("report/aligned", Kind::Switch, "1"),
    setting("report/buffered", Kind::Switch, "1"),
    setting("report/headings", Kind::Text, "1"),
    setting("report/separator", Kind::Text, "\" \""),
    setting("report/list_item_separator", Kind::Text, "\",\""),
    setting("report/prefixes", Kind::Switch, "0"),
    setting("report/quoted", Kind::Switch, "1"),
    setting("report/columns_as_rows", Kind::Switch, "0"),
    setting("report/binary_values_as_numeric", Kind::Switch, "0"),
    setting("report/time_format", Kind::Text, "\"%Y-%m-%d %T %z\""),
    setting("report/lvs_sort", Kind::Text, "\"vg_name,lv_name\""),
    setting(
        "report/lvs_cols",
        Kind::Text,
        "\"lv_name,vg_name,lv_attr,lv_size,pool_lv,origin,data_percent,metadata_percent,move_pv,mirror_log,copy_percent,\
         convert_lv\"",
    ),
    setting(
        "report/lvs_cols_verbose",
        Kind::Text,
        "\"lv_name,vg_name,seg_count,lv_attr,lv_size,lv_major,lv_minor,lv_kernel_major,lv_kernel_minor,pool_lv,origin,\
         data_percent,metadata_percent,move_pv,copy_percent,mirror_log,convert_lv,lv_uuid,lv_profile\"",
    ),
    setting("report/vgs_sort", Kind::Text, "\"vg_name\""),
    setting("report/vgs_cols", Kind::Text, "\"vg_name,pv_count,lv_count,snap_count,vg_attr,vg_size,vg_free\""),
    setting(
        "report/vgs_cols_verbose",
        Kind::Text,
        "\"vg_name,vg_attr,vg_extent_size,pv_count,lv_count,snap_count,vg_size,vg_free,vg_uuid,vg_profile\"",
    ),
    setting("report/pvs_sort", Kind::Text, "\"pv_name\""),
    setting("report/pvs_cols", Kind::Text, "\"pv_name,vg_name,pv_fmt,pv_attr,pv_size,pv_free\""),
    setting(
        "report/pvs_cols_verbose",
        Kind::Text,
        "\"pv_name,vg_name,pv_fmt,pv_attr,pv_size,pv_free,dev_size,pv_uuid\"",
    ),
    setting("report/segs_sort", Kind::Text, "\"vg_name,lv_name,seg_start\""),
    setting("report/segs_cols", Kind::Text, "\"lv_name,vg_name,lv_attr,stripes,segtype,seg_size\""),
    setting(
        "report/segs_cols_verbose",
        Kind::Text,
        "\"lv_name,vg_name,lv_attr,seg_start,seg_size,stripes,segtype,stripe_size,chunk_size\"",
    ),
    setting("report/pvsegs_sort", Kind::Text, "\"pv_name,pvseg_start\""),
    setting(
        "report/pvsegs_cols",
        Kind::Text,
        "\"pv_name,vg_name,pv_fmt,pv_attr,pv_size,pv_free,pvseg_start,pvseg_size\"",
    ),
    setting(
        "report/pvsegs_cols_verbose",
        Kind::Text,
        "\"pv_name,vg_name,pv_fmt,pv_attr,pv_size,pv_free,pvseg_start,pvseg_size,lv_name,seg_start_pe,segtype,\
         seg_pe_ranges\"",
    ),
    setting("report/vgs_cols_full", Kind::Text, "\"vg_all\""),
    setting("report/pvs_cols_full", Kind::Text, "\"pv_all\""),
    setting("report/lvs_cols_full", Kind::Text, "\"lv_all\""),
    setting("report/pvsegs_cols_full", Kind::Text, "\"pvseg_all,pv_uuid,lv_uuid\""),
    setting("report/segs_cols_full", Kind::Text, "\"seg_all\""),
    setting("report/vgs_sort_full", Kind::Text, "\"vg_name\""),
    setting("report/pvs_sort_full", Kind::Text, "\"pv_name\""),
    setting("report/lvs_sort_full", Kind::Text, "\"vg_name,lv_name\""),
    setting("report/pvsegs_sort_full", Kind::Text, "\"pv_uuid,pvseg_start\""),
    setting("report/segs_sort_full", Kind::Text, "\"lv_uuid,seg_start\""),
    setting("server/disk_timeout", Kind::Count, "30"),
    setting("server/fill_keeps", Kind::Percent, "25"),
    setting("server/layout", Kind::Layout, "\"auto\""),
    setting("server/leave_failed_disks", Kind::Switch, "1"),
    setting("server/no_space_timeout", Kind::Count, "60"),
    setting("server/request_memory", Kind::RequestMemory, "256"),
    setting("server/processor_latency", Kind::Latency, "\"auto\""),
    setting("server/rehome", Kind::Switch, "1"),
    setting("server/repair_delay", Kind::Count, "600"),
    setting("tags/hosttags", Kind::Switch, "0"),
];

/// The default of a string setting.
pub fn default_text(path: &str) -> &'static str {
    let known = KNOWN.iter().find(|setting| setting.path == path).and_then(|setting| setting.default);
    known.unwrap_or_default().trim_matches('"')
}

/// All defaults.
pub fn defaults() -> Config {
    let lines = KNOWN.iter().filter_map(|setting| Some(format!("{}={}\n", setting.path, setting.default?)));
    Config::read(&lines.collect::<String>()).expect("the table holds what can be read")
}

/// The contents of the files of settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loaded {
    pub config: Config,
    /// Invalid settings in LVM's files.
    pub warnings: Vec<String>,
}

impl Loaded {
    /// What a server obeys.
    pub fn settings(&self) -> Settings {
        Settings::of(&self.config)
    }
}

/// The type of the value under a path. None: there is no such setting. The administrator chooses the names of tags.
fn kind(path: &str) -> Option<Kind> {
    match path.split('/').collect::<Vec<_>>()[..] {
        ["tags", _, "host_list"] => Some(Kind::Texts),
        _ => KNOWN.iter().find(|setting| setting.path == path).map(|setting| setting.kind),
    }
}

fn is_section(path: &str) -> bool {
    let is_above = |setting: &Setting| setting.path.strip_prefix(path).is_some_and(|rest| rest.starts_with('/'));
    KNOWN.iter().any(is_above) || path.strip_prefix("tags/").is_some_and(|tag| !tag.contains('/'))
}

/// Reads Rowen's own file: every setting in it must be known and valid.
pub fn read(text: &str) -> Result<Config, Error> {
    let config = Config::read(text)?;
    for entry in config.entries() {
        let path = &entry.path;
        let section = path.split('/').next().unwrap_or(path);
        match (kind(path), &entry.value) {
            (Some(kind), Some(value)) => check(kind, entry, value)?,
            (_, None) if is_section(path) => {}
            _ if path.contains('/') && !is_section(section) => {
                return Err(wrong(entry.line, format!("there is no section \"{section}\"")));
            }
            (_, None) => return Err(wrong(entry.line, format!("there is no section \"{path}\""))),
            (None, Some(_)) => return Err(wrong(entry.line, format!("there is no setting \"{path}\""))),
        }
    }
    Ok(config)
}

/// Reads a file of LVM. Unknown settings are kept, because `dumpconfig` prints the file. Known settings with invalid
/// values are dropped. The second value reports these in LVM's words.
pub fn read_lvms(text: &str) -> Result<(Config, Vec<String>), Error> {
    let mut config = Config::read(text)?;
    let mut warnings = Vec::new();
    config.retain(|entry| {
        let Some((kind, value)) = kind(&entry.path).zip(entry.value.as_ref()) else { return true };
        let is_usable = check(kind, entry, value).is_ok();
        if !is_usable {
            warnings.push(format!("WARNING: Ignoring unsupported value for {}.", entry.path));
        }
        is_usable
    });
    Ok((config, warnings))
}

fn check(kind: Kind, entry: &Entry, value: &Value) -> Result<(), Error> {
    let refused = |why: String| Err(wrong(entry.line, why));
    let name = entry.path.rsplit('/').next().unwrap_or_default();
    match (kind, value) {
        (Kind::Switch, Value::Number(0 | 1)) => Ok(()),
        (Kind::Switch, Value::Text(_)) if config::switch(value).is_some() => Ok(()),
        (Kind::Switch, _) => refused(format!("\"{name}\" must be 0 or 1")),
        (Kind::Count, Value::Number(0..)) => Ok(()),
        (Kind::Count, Value::Number(_)) => refused(format!("\"{name}\" must not be negative")),
        (Kind::Count, _) => refused(format!("\"{name}\" must be a number")),
        (Kind::Percent, Value::Number(1..=100)) => Ok(()),
        (Kind::Percent, _) => refused(format!("\"{name}\": a percentage is from 1 to 100")),
        (Kind::Percents, Value::List(items)) => items.iter().try_for_each(|item| check(Kind::Percent, entry, item)),
        (Kind::Percents, _) => refused(format!("\"{name}\" must be a list of percentages, as in [80, 90]")),
        (Kind::Program, Value::Text(path)) if path.is_empty() || path.starts_with('/') => Ok(()),
        (Kind::Program, _) => refused(format!("\"{}\" must be the full path of a program", entry.path)),
        (Kind::Latency, _) if latency(value).is_some() => Ok(()),
        (Kind::Latency, _) => refused(format!("\"{name}\" must be \"auto\", \"off\" or microseconds up to 1000000")),
        (Kind::RequestMemory, Value::Number(MIN_REQUEST_MEMORY..=MAX_REQUEST_MEMORY)) => Ok(()),
        (Kind::RequestMemory, _) => {
            refused(format!("\"{name}\" must be a number of MiB from {MIN_REQUEST_MEMORY} to {MAX_REQUEST_MEMORY}"))
        }
        (Kind::Layout, _) if layout(value).is_some() => Ok(()),
        (Kind::Layout, _) => refused(format!("\"{name}\" must be \"auto\", \"space\" or \"read\"")),
        (Kind::FaultPolicy, Value::Text(word)) if word == "warn" || word == "allocate" => Ok(()),
        (Kind::FaultPolicy, _) => refused(format!("\"{name}\" must be \"warn\" or \"allocate\"")),
        (Kind::Text, Value::Text(_) | Value::Number(_)) => Ok(()),
        (Kind::Text, _) => refused(format!("\"{name}\" must be a string in quotes")),
        (Kind::Texts, Value::Text(_)) => Ok(()),
        (Kind::Texts, Value::List(items)) if items.iter().all(|item| matches!(item, Value::Text(_))) => Ok(()),
        (Kind::Texts, _) => refused(format!("\"{name}\" must be a list of strings in quotes")),
    }
}

/// When a volume is extended automatically, and by how much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Autoextend {
    /// The used percentage above which the volume is extended. 100 or more: never.
    pub threshold: u64,
    /// The percentage of its size by which it grows.
    pub percent: u64,
}

impl Autoextend {
    /// The smallest threshold.
    pub const MIN_THRESHOLD: u64 = 50;

    /// By how many percent of its size a volume grows: at least so much that the used percentage falls to the
    /// threshold. `None`: it does not grow. (LVM's `_adjust_amount` in lib/metadata/lv_manip.c.)
    pub fn growth(&self, used: u64, size: u64) -> Option<u64> {
        let threshold = u128::from(self.threshold.max(Self::MIN_THRESHOLD));
        let (used, size) = (u128::from(used), u128::from(size));
        if threshold >= 100 || self.percent == 0 || used > size || used * 100 <= threshold * size {
            return None;
        }
        // At most twice its size, because the threshold is at least half of it.
        let least = (used * 10_000).div_ceil(size * threshold) - 100;
        u64::try_from(least).ok().map(|least| least.max(self.percent))
    }
}

/// The settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `activation/monitoring`: whether volumes are extended automatically.
    pub monitoring: bool,
    /// `activation/snapshot_autoextend_...`: of snapshots with a size.
    pub snapshot_autoextend: Autoextend,
    /// `activation/thin_pool_autoextend_...`
    pub thin_pool_autoextend: Autoextend,
    /// `backup/backup`: keep the newest metadata of each group in `backup/VG`.
    pub backup: bool,
    /// `backup/archive`: keep the metadata from before each change in `archive/VG_*.vg`.
    pub archive: bool,
    /// `backup/retain_min`: the number of a group's archived files that are kept at any age.
    pub retain_min: u64,
    /// `backup/retain_days`: older files are deleted.
    pub retain_days: u64,
    /// `monitor/thresholds`: used percentages of a group that cause a warning.
    pub thresholds: Vec<u64>,
    /// `monitor/snapshot_threshold`: the used percentage of a snapshot's size that causes a warning.
    pub snapshot_threshold: u64,
    /// `monitor/command`: a program that is run when a threshold is crossed.
    pub command: Option<String>,
    /// `server/no_space_timeout`: for how many seconds writes wait for space, if they do not fail at once; 0: for ever.
    pub no_space_timeout: u64,
    /// `server/request_memory`: MiB of memory that the requests of all volumes of a group may use.
    pub request_memory: u64,
    /// `server/processor_latency`: the limit of the processors' wake-up latency while there are many requests.
    pub processor_latency: ProcessorLatency,
    /// `server/rehome`: fragmented volumes are defragmented in the background.
    pub rehome: bool,
    /// `server/layout`: the layout of volumes without a layout tag.
    pub layout: LayoutSetting,
    /// `server/leave_failed_disks`: the group continues without a disk that failed, if it can (MB9).
    pub leave_failed_disks: bool,
    /// `server/disk_timeout`: after how many seconds a disk that answers nothing counts as failed (MB10); 0: never.
    pub disk_timeout: u64,
    /// `server/fill_keeps`: the percentage of a group, and of a pool, that filling leaves free.
    pub fill_keeps: u64,
    /// `devices/issue_discards`: space that becomes free is discarded on the physical volumes.
    pub issue_discards: bool,
    /// `activation/raid_fault_policy`: `allocate`: copies that a disk took with it are made anew without a person.
    pub repairs_mirrors: bool,
    /// `server/repair_delay`: after how many seconds without the disk.
    pub repair_delay: u64,
    /// `allocation/spare_tag`: the tag of physical volumes that wait for that.
    pub spare_tag: String,
}

/// The layout of volumes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LayoutSetting {
    /// For reading if all physical volumes are rotating disks, otherwise for space.
    #[default]
    Auto,
    Space,
    Read,
}

/// The limit of the processors' wake-up latency.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProcessorLatency {
    /// A value that fits the machine.
    #[default]
    Auto,
    /// No limit.
    Off,
    /// This many microseconds.
    Micros(u32),
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            monitoring: true,
            snapshot_autoextend: Autoextend { threshold: 100, percent: 20 },
            thin_pool_autoextend: Autoextend { threshold: 100, percent: 20 },
            backup: true,
            archive: true,
            retain_min: 10,
            retain_days: 30,
            thresholds: vec![80, 90, 95],
            snapshot_threshold: 80,
            command: None,
            no_space_timeout: 60,
            request_memory: 256,
            processor_latency: ProcessorLatency::Auto,
            rehome: true,
            layout: LayoutSetting::Auto,
            leave_failed_disks: true,
            disk_timeout: 30,
            fill_keeps: 25,
            issue_discards: false,
            repairs_mirrors: false,
            repair_delay: 600,
            spare_tag: "spare".into(),
        }
    }
}

impl Settings {
    /// What a group discards on its disks automatically. Discards on a volume are always passed down, as in LVM.
    pub fn discards(&self) -> Policy {
        Policy { freed: self.issue_discards, passed_down: true }
    }

    /// How long writes wait for space. `None`: for ever.
    pub fn no_space_timeout(&self) -> Option<Duration> {
        (self.no_space_timeout > 0).then(|| Duration::from_secs(self.no_space_timeout))
    }

    /// The settings that a server uses.
    pub fn of(config: &Config) -> Settings {
        let usual = Settings::default();
        let count = |path| match config.value(path) {
            Some(Value::Number(number)) => u64::try_from(*number).ok(),
            _ => None,
        };
        let counts = |value: &Value| match value {
            Value::List(items) => {
                let number =
                    |item: &Value| if let Value::Number(number) = item { u64::try_from(*number).ok() } else { None };
                Some(items.iter().filter_map(number).collect())
            }
            _ => None,
        };
        let autoextend = |threshold, percent, usual: Autoextend| Autoextend {
            threshold: count(threshold).unwrap_or(usual.threshold),
            percent: count(percent).unwrap_or(usual.percent),
        };
        Settings {
            monitoring: config.is_on("activation/monitoring").unwrap_or(usual.monitoring),
            snapshot_autoextend: autoextend(
                "activation/snapshot_autoextend_threshold",
                "activation/snapshot_autoextend_percent",
                usual.snapshot_autoextend,
            ),
            thin_pool_autoextend: autoextend(
                "activation/thin_pool_autoextend_threshold",
                "activation/thin_pool_autoextend_percent",
                usual.thin_pool_autoextend,
            ),
            backup: config.is_on("backup/backup").unwrap_or(usual.backup),
            archive: config.is_on("backup/archive").unwrap_or(usual.archive),
            retain_min: count("backup/retain_min").unwrap_or(usual.retain_min),
            retain_days: count("backup/retain_days").unwrap_or(usual.retain_days),
            thresholds: config.value("monitor/thresholds").and_then(counts).unwrap_or(usual.thresholds),
            snapshot_threshold: count("monitor/snapshot_threshold").unwrap_or(usual.snapshot_threshold),
            command: config.text("monitor/command").filter(|command| !command.is_empty()),
            no_space_timeout: count("server/no_space_timeout").unwrap_or(usual.no_space_timeout),
            request_memory: count("server/request_memory").unwrap_or(usual.request_memory),
            processor_latency: config.value("server/processor_latency").and_then(latency).unwrap_or_default(),
            rehome: config.is_on("server/rehome").unwrap_or(usual.rehome),
            layout: config.value("server/layout").and_then(layout).unwrap_or_default(),
            leave_failed_disks: config.is_on("server/leave_failed_disks").unwrap_or(usual.leave_failed_disks),
            disk_timeout: count("server/disk_timeout").unwrap_or(usual.disk_timeout),
            fill_keeps: count("server/fill_keeps").unwrap_or(usual.fill_keeps),
            issue_discards: config.is_on("devices/issue_discards").unwrap_or(usual.issue_discards),
            repairs_mirrors: config.text("activation/raid_fault_policy").is_some_and(|policy| policy == "allocate"),
            repair_delay: count("server/repair_delay").unwrap_or(usual.repair_delay),
            spare_tag: config.text("allocation/spare_tag").unwrap_or(usual.spare_tag),
        }
    }
}

fn latency(value: &Value) -> Option<ProcessorLatency> {
    match value {
        Value::Text(word) if word == "auto" => Some(ProcessorLatency::Auto),
        Value::Text(word) if word == "off" => Some(ProcessorLatency::Off),
        Value::Number(number @ 0..=1_000_000) => u32::try_from(*number).ok().map(ProcessorLatency::Micros),
        _ => None,
    }
}

fn layout(value: &Value) -> Option<LayoutSetting> {
    match value {
        Value::Text(word) if word == "auto" => Some(LayoutSetting::Auto),
        Value::Text(word) if word == "space" => Some(LayoutSetting::Space),
        Value::Text(word) if word == "read" => Some(LayoutSetting::Read),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<Settings, Error> {
        read(text).map(|config| Settings::of(&config))
    }

    #[test]
    fn an_empty_file_is_the_defaults() {
        assert_eq!(of("# nothing\n"), Ok(Settings::default()));
        assert_eq!(Settings::of(&defaults()), Settings::default(), "the table and the defaults differ");
        for entry in defaults().entries() {
            let line = format!("{}={}", entry.path, entry.value.as_ref().unwrap());
            assert!(read(&line).is_ok(), "{line}");
        }
        assert_eq!(default_text("report/vgs_sort"), "vg_name");
        assert_eq!(default_text("report/separator"), " ");
    }

    #[test]
    fn what_is_set_is_read() {
        let text = "backup {\n archive = no\n retain_min = 3\n}\nmonitor/command = \"/bin/true\"\n\
                    monitor { thresholds = [70] snapshot_threshold = 50 }\n\
                    server/processor_latency = 20 server/no_space_timeout = 0 server/request_memory = 64 server { layout = \"read\" fill_keeps = 40 leave_failed_disks = 0 disk_timeout = 5 } devices/issue_discards = 1 tags { hosttags=1 one {} two { host_list=[\"h\"] } }";
        let expected = Settings {
            archive: false,
            retain_min: 3,
            thresholds: vec![70],
            snapshot_threshold: 50,
            command: Some("/bin/true".into()),
            processor_latency: ProcessorLatency::Micros(20),
            no_space_timeout: 0,
            request_memory: 64,
            layout: LayoutSetting::Read,
            leave_failed_disks: false,
            disk_timeout: 5,
            fill_keeps: 40,
            issue_discards: true,
            ..Settings::default()
        };
        assert_eq!(of(text), Ok(expected));
    }

    #[test]
    fn what_fills_up_grows_to_its_threshold_at_least() {
        let policy = |threshold, percent| Autoextend { threshold, percent };
        assert_eq!(policy(70, 20).growth(70, 100), None, "at the threshold is not above it");
        assert_eq!(policy(70, 20).growth(71, 100), Some(20));
        assert_eq!(policy(50, 20).growth(100, 100), Some(100), "to where half of it is in use");
        assert_eq!(policy(70, 20).growth(100, 100), Some(43));
        assert_eq!(policy(10, 20).growth(45, 100), None, "never below a half");
        assert_eq!(policy(100, 20).growth(100, 100), None, "switched off");
        assert_eq!(policy(70, 0).growth(100, 100), None);
        assert_eq!(policy(70, 20).growth(101, 100), None, "it has overflowed: no size helps");
        assert_eq!(policy(70, 20).growth(0, 0), None);
        assert_eq!(policy(99, 300).growth(u64::MAX, u64::MAX), Some(300));
        let text = "activation { snapshot_autoextend_threshold = 70 thin_pool_autoextend_percent = 30 }";
        let settings = of(text).unwrap();
        assert_eq!((settings.snapshot_autoextend, settings.thin_pool_autoextend), (policy(70, 20), policy(100, 30)));
    }

    #[test]
    fn a_mistake_is_reported_with_its_line() {
        for (text, line, words) in [
            ("backup {\n archive = 0\n", 3, "unexpected token"),
            ("backup {\n archve = 0\n}", 2, "no setting \"backup/archve\""),
            ("backup {\n archive = 2\n}", 2, "0 or 1"),
            ("backup {\n archive = maybe\n}", 2, "0 or 1"),
            ("backup/retain_days = -1", 1, "must not be negative"),
            ("backup/retain_days = 1.5", 1, "must be a number"),
            ("\ndmeventd { }", 2, "no section \"dmeventd\""),
            ("\nallocation { cling = 1 }", 2, "no setting \"allocation/cling\""),
            ("activation { raid_fault_policy = \"remove\" }", 1, "\"warn\" or \"allocate\""),
            ("server { repair_delay = -1 }", 1, "must not be negative"),
            ("monitor { thresholds = [0] }", 1, "1 to 100"),
            ("monitor { thresholds = 80 }", 1, "list of percentages"),
            ("monitor { command = \"alert\" }", 1, "full path"),
            ("server { processor_latency = \"fast\" }", 1, "auto"),
            ("server { processor_latency = -1 }", 1, "auto"),
            ("server { layout = \"fast\" }", 1, "\"space\" or \"read\""),
            ("server { request_memory = 15 }", 1, "16 to 1048576"),
            ("server { fill_keeps = 101 }", 1, "1 to 100"),
            ("report/lvs_cols = [\"lv_name\"]", 1, "a string in quotes"),
            ("activation/volume_list = [\"vg0\", 1]", 1, "list of strings"),
            ("archive = 1", 1, "no setting \"archive\""),
            ("tags/one/two = 1", 1, "no setting \"tags/one/two\""),
        ] {
            let error = read(text).unwrap_err();
            assert_eq!(error.line, line, "{text}: {error}");
            assert!(error.why.contains(words), "{text}: {error}");
        }
    }

    #[test]
    fn a_file_of_lvms_may_hold_anything() {
        let text = "devices { filter = [\"a|.*|\"] }\nbackup/backup = [1]\nbackup { archive = 0 }";
        let (config, warnings) = read_lvms(text).unwrap();
        assert_eq!(warnings, ["WARNING: Ignoring unsupported value for backup/backup."]);
        assert_eq!(Settings::of(&config), Settings { archive: false, ..Settings::default() });
        assert_eq!(config.texts("devices/filter"), Some(vec!["a|.*|".to_owned()]));
        assert!(read_lvms("devices {").is_err());
    }
}
