//! The document of `rowen facts` about all groups, made from the same samples as `rowen top`. [`Collector`] uses no
//! clock and no file; the command has these.

mod events;
mod latency;

pub use events::Events;

use crate::commands::{status, tree};
use crate::report::time::TimeFormat;
use crate::top::draw;
use crate::top::face::{Face, Tone};
use crate::top::model::{Event, Group, Model};
use crate::top::sample::Sample;
use crate::top::views::work;
use latency::Latencies;
use rowen_control::protocol::{GroupReport, StatusReport};
use rowen_control::status::{Problem, PvState};
use rowen_engine::units::BLOCK_SIZE;
use rowen_web::facts::{self, Facts};
use std::collections::{BTreeMap, HashMap};

/// The largest number of volumes of a group in the document. `rowen tree` shows all.
const VOLUMES: usize = 1000;

/// Makes the document from samples.
pub struct Collector {
    model: Model,
    latencies: Latencies,
    pub events: Events,
    /// When a group's volumes were last read.
    volumes_at: BTreeMap<String, f64>,
    form: TimeFormat,
    /// Seconds between two samples.
    every: u64,
}

impl Collector {
    pub fn new(host: String, wanted: Vec<String>, every: u64) -> Collector {
        let face = Face { is_utf8: true, has_colours: false };
        Collector {
            model: Model::new(face, host, wanted, (0, 0)),
            latencies: Latencies::default(),
            events: Events::default(),
            volumes_at: BTreeMap::new(),
            form: TimeFormat::default(),
            every,
        }
    }

    /// Continues the document of an earlier collector, if that is from the host's present boot.
    pub fn go_on(&mut self, before: &Facts, uptime: f64) {
        self.latencies.go_on(before, uptime);
    }

    /// Adds a sample that was taken this long after the host's boot.
    pub fn see(&mut self, sample: Sample, uptime: f64) {
        for group in sample.groups.iter().filter(|group| group.volumes.is_some()) {
            self.volumes_at.insert(group.status.name.clone(), uptime);
        }
        self.model.update(Event::Sampled { sample, at: uptime }, &draw::shown);
        self.volumes_at.retain(|name, _| self.model.groups.iter().any(|group| group.status.name == *name));
        self.latencies.see(&self.model.groups, uptime);
    }

    /// Named groups that are unknown.
    pub fn missing(&self) -> impl Iterator<Item = &String> {
        self.model.missing()
    }

    /// What is known at this time.
    pub fn facts(&self, uptime: f64) -> Facts {
        let time = self.model.time.unwrap_or(0);
        let groups = &self.model.groups;
        Facts {
            version: facts::VERSION,
            program: env!("CARGO_PKG_VERSION").to_owned(),
            host: self.model.host.clone(),
            time,
            at: self.form.show(time),
            uptime,
            every: self.every,
            healthy: self.model.problems.is_empty() && groups.iter().all(|group| group.status.healthy),
            problems: self.model.problems.iter().map(problem).collect(),
            groups: groups.iter().map(|group| self.group(group, uptime)).collect(),
        }
    }

    fn group(&self, group: &Group, uptime: f64) -> facts::Group {
        let status = &group.status;
        let rows = group.volumes.as_deref().map(|report| self.volumes(report)).unwrap_or_default();
        let (volumes, left_out) = rows;
        facts::Group {
            name: status.name.clone(),
            state: status.state.word().to_owned(),
            healthy: status.healthy,
            sentence: status.sentence.clone(),
            runs: status::runs(status),
            problems: status.problems.iter().map(problem).collect(),
            space: group.report.as_deref().map(space),
            pools: group.report.iter().flat_map(|report| &report.pools).map(pool).collect(),
            physical_volumes: status.physical_volumes.iter().map(pv).collect(),
            load: load(group),
            volumes_uptime: (!volumes.is_empty()).then(|| self.volumes_at.get(&status.name).copied()).flatten(),
            volumes,
            volumes_left_out: left_out,
            work: work::items(group).into_iter().map(work_of).collect(),
            latency: self.latencies.of(&status.name, uptime),
            busy_volumes: self.latencies.busy(&status.name, uptime),
            events: self.events.of(&status.name, &self.form),
        }
    }

    /// The volumes of a group, and the number of those left out.
    fn volumes(&self, report: &GroupReport) -> (Vec<facts::Volume>, u64) {
        let tags: HashMap<&str, &Vec<String>> =
            report.volumes.iter().map(|volume| (volume.name.as_str(), &volume.attributes.tags)).collect();
        let rows = tree::rows(report);
        let left_out = rows.len().saturating_sub(VOLUMES) as u64;
        let volume = |row: tree::Row<'_>| facts::Volume {
            name: row.name.to_owned(),
            parent: row.parent.map(str::to_owned),
            depth: row.depth as u64,
            size_bytes: row.size_bytes,
            referenced_bytes: row.referenced_bytes,
            own_bytes: row.own_bytes,
            freed_if_removed_bytes: row.freed_if_removed_bytes,
            // The date and the time to the minute.
            created: self.form.show(row.created).get(..16).unwrap_or_default().to_owned(),
            tags: tags.get(row.name).map(|tags| (*tags).clone()).unwrap_or_default(),
            state: row.state,
        };
        (rows.into_iter().take(VOLUMES).map(volume).collect(), left_out)
    }
}

fn problem(problem: &Problem) -> facts::Problem {
    facts::Problem { what: problem.what.clone(), next: problem.next.clone() }
}

fn bytes(blocks: u64) -> u64 {
    blocks.saturating_mul(BLOCK_SIZE)
}

fn space(report: &StatusReport) -> facts::Space {
    facts::Space {
        size_bytes: bytes(report.blocks),
        free_bytes: bytes(report.available_blocks),
        metadata_bytes: bytes(report.metadata_blocks),
    }
}

fn pool(pool: &rowen_control::protocol::PoolFill) -> facts::Pool {
    facts::Pool { name: pool.name.clone(), size_bytes: bytes(pool.blocks), used_bytes: bytes(pool.used_blocks) }
}

fn pv(pv: &PvState) -> facts::Pv {
    let failed = [pv.failed_reads, pv.failed_writes, pv.failed_flushes];
    facts::Pv {
        path: pv.path.clone().unwrap_or_else(|| pv.uuid.clone()),
        state: pv.state.word().to_owned(),
        size_bytes: pv.size_bytes,
        failed: failed.iter().any(Option::is_some).then(|| failed.into_iter().flatten().sum()),
    }
}

fn load(group: &Group) -> Option<facts::Load> {
    let done = group.done.as_ref().filter(|done| done.seconds() > 0.0)?;
    let (sum, seconds) = (done.sum(), done.seconds());
    Some(facts::Load {
        requests: sum.all().requests as f64 / seconds,
        read_bytes: sum.read.bytes as f64 / seconds,
        written_bytes: sum.write.bytes as f64 / seconds,
    })
}

fn work_of(item: work::Item<'_>) -> facts::Work {
    facts::Work {
        done: item.pace.and_then(|(pace, _)| pace.share()),
        seconds_left: item.pace.and_then(|(pace, _)| pace.seconds_left()),
        is_stuck: item.tone == Tone::Bad,
        what: item.what,
        why: item.why,
    }
}
