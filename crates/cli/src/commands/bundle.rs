//! The support bundle: one file with what a helper needs to know. It has the output of commands, logs and the state of
//! the host. It has no contents of volumes. Each part has a time limit, and the command reports what it left out.

use crate::backend::{End, Gathered, Probe};
use crate::failure::{Failure, Result};
use crate::options::Opt;
use crate::parse::Args;
use crate::session::Session;
use rowen_control::status::ServerSeen;
use rowen_control::{names, time};
use std::time::Duration;

/// The time limits for one part and for all parts together.
const LIMIT: Duration = Duration::from_secs(10);
const TOGETHER: Duration = Duration::from_secs(120);
/// The longest part, in bytes.
const MAX: usize = 1 << 20;
/// The limit for the newest copy of the metadata, which grows with the group.
const MAX_METADATA: usize = 8 << 20;

fn probe(name: impl Into<String>, words: &[&str]) -> Probe {
    let words = words.iter().map(|word| (*word).to_owned()).collect();
    Probe { name: name.into(), words, limit: LIMIT, most: MAX, end: End::First }
}

/// The end of a program's output.
fn last(name: impl Into<String>, words: &[&str]) -> Probe {
    Probe { end: End::Last, ..probe(name, words) }
}

/// The end of a file. A missing file is no error.
fn file(name: impl Into<String>, path: &str) -> Probe {
    last(name, &["tail", "-c", &MAX.to_string(), "--", path])
}

/// The parts about the host.
fn of_host() -> Vec<Probe> {
    vec![
        probe("host/uname.txt", &["uname", "-a"]),
        file("host/os-release.txt", "/etc/os-release"),
        file("host/mountinfo.txt", "/proc/self/mountinfo"),
        file("host/memory.txt", "/proc/meminfo"),
        file("host/swaps.txt", "/proc/swaps"),
        file("host/load.txt", "/proc/loadavg"),
        file("host/uptime.txt", "/proc/uptime"),
        file("host/processors.txt", "/proc/cpuinfo"),
        file("host/modules.txt", "/proc/modules"),
        file("host/filesystems.txt", "/proc/filesystems"),
        file("host/partitions.txt", "/proc/partitions"),
        probe("host/loop-devices.txt", &["losetup", "--list", "--all"]),
        probe("host/block-devices.txt", &["lsblk", "-o", "NAME,MAJ:MIN,SIZE,RO,ROTA,TYPE,FSTYPE,MOUNTPOINT,MODEL"]),
        // Only Rowen's processes: command lines of other programs may contain secrets.
        probe("host/processes.txt", &["ps", "-C", "rowen", "-o", "pid,ppid,stat,wchan:32,etimes,rss,args"]),
        last("host/kernel-log.txt", &["dmesg"]),
        last("host/journal.txt", &["journalctl", "--no-pager", "-n", "5000", "-u", "rowen*"]),
        probe("host/units.txt", &["systemctl", "--no-pager", "status", "rowen*"]),
    ]
}

/// The output of Rowen's commands that need no server.
fn of_rowen(system: &str, run: &str) -> Vec<Probe> {
    vec![
        probe("rowen/version.txt", &["rowen", "version"]),
        probe("rowen/status.txt", &["rowen", "status"]),
        probe("rowen/status.json", &["rowen", "status", "--json"]),
        probe("rowen/iostat.json", &["rowen", "iostat", "--json"]),
        probe("rowen/metrics.txt", &["rowen", "metrics"]),
        last("rowen/history.txt", &["rowen", "history", "-l"]),
        last("rowen/events.txt", &["rowen", "events"]),
        probe("rowen/features.txt", &["rowen", "features"]),
        probe("rowen/settings-in-force.txt", &["rowen", "lvmconfig"]),
        file("rowen/rowen.conf", &format!("{system}/rowen.conf")),
        file("rowen/devices", &format!("{system}/devices")),
        probe("rowen/room.txt", &["df", "-P", system, run]),
    ]
}

/// The parts about one group.
fn of_group(group: &str, is_served: bool, system: &str, run: &str) -> Vec<Probe> {
    let name = |file: &str| format!("groups/{group}/{file}");
    let mut probes = vec![
        file(name("server.log"), &format!("{run}/{group}/server.log")),
        file(name("server.log.old"), &format!("{run}/{group}/server.log.old")),
        file(name("keeper.log"), &format!("{run}/{group}/keeper.log")),
        file(name("members"), &format!("{run}/{group}/members")),
        probe(name("features.txt"), &["rowen", "features", group]),
    ];
    let mut metadata = file(name("metadata.txt"), &format!("{system}/backup/{group}"));
    (metadata.most, metadata.end) = (MAX_METADATA, End::First);
    metadata.words = ["head", "-c", &MAX_METADATA.to_string(), "--", &format!("{system}/backup/{group}")]
        .map(str::to_owned)
        .to_vec();
    probes.push(metadata);
    // A request to a group without a server would open the group.
    if is_served {
        probes.push(probe(name("report.txt"), &["rowen", "fullreport", group]));
        probes.push(probe(name("tree.txt"), &["rowen", "tree", group]));
        probes.push(probe(name("stats.txt"), &["rowen", "stats", group]));
    }
    probes
}

const ABOUT: &str = "\
What a helper needs to know, gathered by `rowen support-bundle`.

It has names of volume groups, volumes, devices, mount points, hosts and users, and command lines of Rowen.
It has no data of volumes, no maps of where data lies, and no command lines of other programs.
Left out always: `rowen check VG`, which reads all metadata and may take long. Run it and send what it says.
";

pub fn support_bundle(session: &mut Session<'_>, args: &Args) -> Result {
    if let Some(word) = args.positionals.first() {
        return Err(Failure::Operand(word.clone()));
    }
    let (system, run) = session.backend.directories();
    let stamp = time::compact(session.backend.now());
    let host: String = session.backend.host_name().chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').collect();
    let title = format!("rowen-support-{host}-{stamp}");
    let path = args.text(Opt::Output).map_or_else(|| format!("{title}.tar.gz"), str::to_owned);
    // The file comes first: if it cannot be written, there is no need to collect.
    let file = session.backend.new_bundle(&path)?;
    let survey = session.backend.survey(&[]);
    let mut probes = of_host();
    probes.extend(of_rowen(&system, &run));
    for seen in survey.groups.iter().filter(|seen| names::check_form(&seen.name).is_ok()) {
        let is_served = matches!(seen.server, ServerSeen::Answered { .. });
        probes.extend(of_group(&seen.name, is_served, &system, &run));
    }
    session.console.progress(0, 0, "Gathering");
    let gathered = session.backend.gather(&probes, TOGETHER);
    let mut parts: Vec<(String, Vec<u8>)> = Vec::with_capacity(probes.len() + 1);
    let mut left_out = Vec::new();
    for (probe, gathered) in probes.iter().zip(gathered) {
        let Gathered { text, trouble } = gathered;
        if let Some(trouble) = trouble {
            left_out.push(format!("{}: {trouble}", probe.name));
        }
        if !text.is_empty() {
            parts.push((format!("{title}/{}", probe.name), text));
        }
    }
    let about = format!(
        "{ABOUT}\nGathered at {}.\n\nLeft out or not whole:\n{}\n",
        time::long(session.backend.now()),
        list(&left_out)
    );
    parts.insert(0, (format!("{title}/README.txt"), about.into_bytes()));
    let count = parts.len();
    session.backend.write_bundle(file, &path, parts)?;
    session
        .console
        .say(format!("{count} parts are in {path}. It has no data of volumes; look through it before you send it."));
    if !left_out.is_empty() {
        session.console.complain("Left out or not whole:");
        left_out.iter().for_each(|line| session.console.complain(format!("  {line}")));
    }
    Ok(())
}

fn list(lines: &[String]) -> String {
    if lines.is_empty() {
        "  nothing".to_owned()
    } else {
        lines.iter().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
    }
}
