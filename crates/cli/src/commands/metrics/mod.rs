//! Metrics of the groups for Prometheus. Names and units follow its conventions: bytes and seconds, `_total` at the end
//! of counters. Unknown values are left out.

pub mod exposition;

use crate::backend::Place;
use crate::commands::groups::known_group;
use crate::failure::{Failure, Result};
use crate::options::Opt;
use crate::parse::Args;
use crate::session::{Session, no_group};
use exposition::{Exposition, Labels, Value};
use rowen_control::protocol::{
    BUCKETS, IoCounts, MirrorReport, OpCounts, ScrubReport, StatsReport, StatusReport, bucket_end,
};
use rowen_control::status::{Counters, GroupStatus, PvWord, ServerSeen, State, Survey, judge};
use rowen_engine::units::BLOCK_SIZE;
use std::net::{Ipv4Addr, SocketAddr};

/// The parts of a group's state that [`GroupStatus`] does not have.
struct More {
    group: String,
    report: Option<Box<StatusReport>>,
    counters: Option<Box<Counters>>,
}

pub fn metrics(session: &mut Session<'_>, args: &Args) -> Result {
    let wanted = args.positionals.iter().map(|word| known_group(word)).collect::<Result<Vec<String>>>()?;
    if let Some(place) = args.text(Opt::Listen) {
        return serve(session, place, &wanted);
    }
    let (text, missing) = collect(session, &wanted)?;
    missing.iter().for_each(|name| session.console.complain(no_group(name)));
    session.console.raw_out(&text);
    if missing.is_empty() { Ok(()) } else { Err(Failure::Told) }
}

/// Answers HTTP requests until this process is ended. A group that is missing now may exist at the next request.
fn serve(session: &mut Session<'_>, place: &str, wanted: &[String]) -> Result {
    let place = place_of(place)?;
    let (at, mut scrapes) = session.backend.listen(place).map_err(Failure::from)?;
    session.console.say(format!("Metrics are at http://{at}/metrics."));
    session.console.flush();
    loop {
        scrapes.wait().map_err(Failure::from)?;
        let (text, _) = collect(session, wanted)?;
        scrapes.answer(&text).map_err(Failure::from)?;
    }
}

/// Host names are refused: their addresses can change, and the process must listen at the address that was asked for.
fn place_of(text: &str) -> Result<Place> {
    let loopback = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    match text {
        "systemd" => Ok(Place::HandedOver),
        _ => text.parse().map(loopback).or_else(|_| text.parse()).map(Place::At).map_err(|_| {
            Failure::usage(format!(
                "Cannot listen at {text}. Give a port, an IP address and a port (127.0.0.1:10858, [::1]:10858), or systemd."
            ))
        }),
    }
}

/// The metrics now, and the named groups that do not exist.
fn collect(session: &mut Session<'_>, wanted: &[String]) -> Result<(String, Vec<String>)> {
    let mut survey = session.backend.survey_with_counters(wanted);
    let more = more(&mut survey);
    let status = judge(survey);
    let is_known = |name: &&String| status.groups.iter().any(|group| group.name == **name);
    let missing = wanted.iter().filter(|name| !is_known(name)).cloned().collect();
    let mut metrics = Exposition::default();
    metrics.add(
        "rowen_build_info",
        "The version of the program",
        vec![("version", env!("CARGO_PKG_VERSION").into())],
        Value::Gauge(1.0),
    );
    let problems = status.problems.len() as f64;
    metrics.add(
        "rowen_host_problems",
        "What is wrong with no volume group in particular",
        Vec::new(),
        Value::Gauge(problems),
    );
    status.groups.iter().for_each(|group| add_group(&mut metrics, group));
    for More { group, report, counters } in &more {
        report.iter().for_each(|report| add_report(&mut metrics, group, report));
        counters.iter().for_each(|counters| add_counters(&mut metrics, group, counters));
    }
    let text = metrics.text().map_err(|e| Failure::failed(format!("The metrics cannot be written: {e}.")))?;
    Ok((text, missing))
}

/// Takes the counters out of a survey, and copies what servers reported.
fn more(survey: &mut Survey) -> Vec<More> {
    let take = |seen: &mut rowen_control::status::Seen| {
        let report = match &seen.server {
            ServerSeen::Answered { report, .. } => Some(report.clone()),
            _ => None,
        };
        More { group: seen.name.clone(), report, counters: seen.counters.take() }
    };
    survey.groups.iter_mut().map(take).collect()
}

fn of_group(group: &str) -> Labels {
    vec![("vg", group.to_owned())]
}

fn with(labels: &Labels, name: &'static str, value: &str) -> Labels {
    let mut labels = labels.clone();
    labels.push((name, value.to_owned()));
    labels
}

fn gauge(number: u64) -> Value {
    Value::Gauge(number as f64)
}

fn flag(is_so: bool) -> Value {
    Value::Gauge(f64::from(u8::from(is_so)))
}

/// The state of a group, as `rowen status` reports it.
fn add_group(metrics: &mut Exposition, group: &GroupStatus) {
    let labels = of_group(&group.name);
    metrics.add(
        "rowen_group_healthy",
        "Whether nothing is wrong with the volume group",
        labels.clone(),
        flag(group.healthy),
    );
    let problems = Value::Gauge(group.problems.len() as f64);
    metrics.add("rowen_group_problems", "What is wrong with the volume group", labels.clone(), problems);
    for state in State::ALL {
        let word = state.word().replace(' ', "_");
        metrics.add(
            "rowen_group_state",
            "The state of the volume group: 1 for the one that it is in, 0 for all others",
            with(&labels, "state", &word),
            flag(state == group.state),
        );
    }
    let waiting = gauge(group.waiting_volumes.len() as u64);
    metrics.add("rowen_group_waiting_volumes", "Volumes whose writes wait for space", labels.clone(), waiting);
    if let Some(restarts) = group.restarts {
        let help = "Servers that the keeper of the volume group has started since the keeper began";
        metrics.add("rowen_group_server_starts", help, labels.clone(), Value::Counter(restarts));
    }
    if let Some(deaths) = group.deaths {
        let help = "Servers of the volume group that ended unasked or did not begin to serve, since the keeper began";
        metrics.add("rowen_group_server_deaths", help, labels.clone(), Value::Counter(deaths));
    }
    for pv in &group.physical_volumes {
        let labels = with(&labels, "pv", pv.path.as_deref().unwrap_or(&pv.uuid));
        let is_ok = flag(pv.state == PvWord::Ok);
        metrics.add(
            "rowen_pv_healthy",
            "Whether the physical volume is there, answers and failed no request",
            labels.clone(),
            is_ok,
        );
        if let Some(size) = pv.size_bytes {
            metrics.add("rowen_pv_size_bytes", "The size of the physical volume", labels.clone(), gauge(size));
        }
        for (operation, failed) in
            [("read", pv.failed_reads), ("write", pv.failed_writes), ("flush", pv.failed_flushes)]
        {
            if let Some(failed) = failed {
                let help = "Requests to the physical volume that failed since its group was opened";
                metrics.add(
                    "rowen_pv_failed_requests",
                    help,
                    with(&labels, "operation", operation),
                    Value::Counter(failed),
                );
            }
        }
    }
}

/// What a group's server reports about its space and volumes.
fn add_report(metrics: &mut Exposition, group: &str, report: &StatusReport) {
    let labels = of_group(group);
    let help = "Keepers of the volume group that died while this server serves";
    metrics.add("rowen_group_keeper_deaths", help, labels.clone(), Value::Counter(report.keeper_deaths));
    let numbers = [
        ("rowen_group_open_seconds", "How long the server has had the volume group open", report.open_seconds),
        ("rowen_group_size_bytes", "The space of the volume group", bytes(report.blocks)),
        ("rowen_group_free_bytes", "Space of the volume group that can be taken", bytes(report.available_blocks)),
        ("rowen_group_metadata_bytes", "Space of metadata and the journal", bytes(report.metadata_blocks)),
        ("rowen_group_volumes", "Logical volumes of the volume group", report.volumes),
        ("rowen_group_active_volumes", "Logical volumes of the volume group that are active", report.active_volumes),
    ];
    for (name, help, number) in numbers {
        metrics.add(name, help, labels.clone(), gauge(number));
    }
    for pool in &report.pools {
        let labels = with(&labels, "lv", &pool.name);
        metrics.add("rowen_pool_size_bytes", "The size of the thin pool", labels.clone(), gauge(bytes(pool.blocks)));
        metrics.add(
            "rowen_pool_used_bytes",
            "Space that the volumes of the thin pool have taken",
            labels,
            gauge(bytes(pool.used_blocks)),
        );
    }
    add_mirrors(metrics, &labels, &report.mirrors, &report.scrubs);
    if let Some(moving) = report.moving.as_ref().filter(|moving| moving.is_running) {
        let labels = with(&labels, "pv", &moving.path);
        let help = "What is to be moved off the physical volume, since the move began";
        metrics.add("rowen_move_size_bytes", help, labels.clone(), gauge(moving.total_bytes));
        let help = "What of it was copied";
        metrics.add("rowen_move_copied_bytes", help, labels.clone(), gauge(moving.copied_bytes));
        metrics.add("rowen_move_waits", "Whether the move waits", labels, flag(moving.waits.is_some()));
    }
    for held in &report.held {
        let help = "How long writes to the volume have waited for space";
        metrics.add("rowen_volume_held_seconds", help, with(&labels, "lv", &held.name), gauge(held.seconds));
    }
}

/// Nothing of a group without mirrored volumes.
fn add_mirrors(metrics: &mut Exposition, labels: &Labels, mirrors: &MirrorReport, scrubs: &[(String, ScrubReport)]) {
    if mirrors.extents == 0 {
        return;
    }
    let different = scrubs.iter().filter(|(_, scrub)| scrub.has_differences());
    let sizes = [
        ("rowen_mirror_size_bytes", "Space of mirrored volumes, each copy counted once", mirrors.bytes),
        ("rowen_mirror_free_bytes", "Of that, space in whole extents that nothing uses", mirrors.free_bytes()),
        ("rowen_mirror_unsynced_bytes", "Of that, space whose copies may differ", mirrors.unsynced_bytes),
        (
            "rowen_mirror_outdated_bytes",
            "Of that, space that cannot be read, because the disk with the only current copy is out",
            mirrors.outdated_bytes,
        ),
        (
            "rowen_mirror_single_bytes",
            "Of that, space with one copy, because the disk with the other one was removed",
            mirrors.single_bytes(),
        ),
        (
            "rowen_mirror_different_bytes",
            "Data whose copies were found to differ, and were not repaired",
            bytes(different.map(|(_, scrub)| scrub.different_blocks).sum()),
        ),
    ];
    for (name, help, number) in sizes {
        metrics.add(name, help, labels.clone(), gauge(number));
    }
}

fn bytes(blocks: u64) -> u64 {
    blocks.saturating_mul(BLOCK_SIZE)
}

fn add_counters(metrics: &mut Exposition, group: &str, counters: &Counters) {
    let labels = of_group(group);
    add_stats(metrics, &labels, &counters.stats);
    let (used, limit) = (counters.io.request_memory_bytes, counters.io.request_memory_limit_bytes);
    let help = "Memory that requests of the volume group's volumes use";
    metrics.add("rowen_group_request_memory_bytes", help, labels.clone(), gauge(used));
    let help = "Memory that requests of the volume group's volumes may use";
    metrics.add("rowen_group_request_memory_limit_bytes", help, labels.clone(), gauge(limit));
    for pv in &counters.io.pvs {
        add_io(metrics, "pv", &with(&labels, "pv", &pv.path), &pv.counts);
    }
    for volume in &counters.io.volumes {
        let labels = with(&labels, "lv", &volume.name);
        add_io(metrics, "volume", &labels, &volume.counts);
        let is_active = flag(volume.is_active);
        metrics.add("rowen_volume_active", "Whether the volume is active, of those that were", labels, is_active);
    }
}

/// The counters of `rowen stats`.
fn add_stats(metrics: &mut Exposition, labels: &Labels, stats: &StatsReport) {
    for (name, value) in stats.rows() {
        // A server may later find a place in order again that it counted as damaged.
        let value = if name == "ring_blocks_bad" { gauge(value) } else { Value::Counter(value) };
        let help = "A counter of rowen stats, since the volume group was opened";
        metrics.add(format!("rowen_engine_{name}"), help, labels.clone(), value);
    }
}

/// Requests to a volume or a disk.
fn add_io(metrics: &mut Exposition, what: &str, labels: &Labels, io: &IoCounts) {
    let is_disk = what == "pv";
    let bytes = [
        ("read", io.read.bytes),
        ("written", io.write.bytes),
        ("discarded", io.discard.bytes.saturating_add(io.zero.bytes)),
    ];
    for (done, count) in bytes {
        let help = "Bytes of the requests that were carried out";
        metrics.add(format!("rowen_{what}_{done}_bytes"), help, labels.clone(), Value::Counter(count));
    }
    metrics.add(
        format!("rowen_{what}_requests_under_way"),
        "Requests that wait for an answer",
        labels.clone(),
        gauge(io.under_way),
    );
    for (operation, op) in io.each() {
        // Disks get no requests for zeros. Their failed requests are reported with their states.
        if is_disk && operation == "zero" {
            continue;
        }
        let labels = with(labels, "operation", operation);
        if !is_disk {
            let help = "Requests to the volume that failed since its group was opened";
            metrics.add("rowen_volume_failed_requests", help, labels.clone(), Value::Counter(op.failed));
        }
        metrics.add(
            format!("rowen_{what}_requests"),
            "Requests that were answered",
            labels.clone(),
            Value::Counter(op.requests),
        );
        // A histogram needs many lines, so an empty one is left out.
        if op.requests > 0 {
            let help = "How long requests took";
            metrics.add(format!("rowen_{what}_request_duration_seconds"), help, labels, histogram(op));
        }
    }
}

fn histogram(op: &OpCounts) -> Value {
    let bound = |bucket| bucket_end(bucket).map_or(f64::INFINITY, |micros| micros as f64 / 1e6);
    let buckets = (0..BUCKETS).map(|bucket| (bound(bucket), op.buckets[bucket])).collect();
    Value::Histogram { sum: op.micros as f64 / 1e6, buckets }
}
