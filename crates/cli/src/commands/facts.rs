//! The state of all groups as one document: printed once, or written to a file for `rowen-web` periodically.

use super::groups::known_group;
use crate::backend::Follow;
use crate::facts::Collector;
use crate::failure::{Failure, Result};
use crate::options::Opt;
use crate::parse::Args;
use crate::session::{Session, no_group};
use crate::top::run::Sampler;
use rowen_web::facts;
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// The time between two documents.
const EVERY: Duration = Duration::from_secs(10);
/// The interval over which a single document measures rates.
const SECOND: Duration = Duration::from_secs(1);

pub fn facts(session: &mut Session<'_>, args: &Args) -> Result {
    let wanted = args.positionals.iter().map(|word| known_group(word)).collect::<Result<Vec<String>>>()?;
    match args.text(Opt::To) {
        Some(path) => again_and_again(session, path, wanted),
        None => once(session, wanted),
    }
}

fn collector(session: &mut Session<'_>, wanted: &[String], every: Duration) -> Collector {
    Collector::new(session.backend.host_name(), wanted.to_vec(), every.as_secs())
}

fn sample(session: &mut Session<'_>, sampler: &mut Sampler, collector: &mut Collector) -> f64 {
    let time = session.backend.now();
    let sample = sampler.sample(&mut |groups, depth| session.backend.survey_groups(groups, depth), time);
    let uptime = facts::uptime();
    collector.see(sample, uptime);
    uptime
}

fn read_events(session: &mut Session<'_>, collector: &mut Collector) {
    for kept in session.backend.history() {
        collector.events.add(&kept.uuid, &kept.events);
    }
}

fn once(session: &mut Session<'_>, wanted: Vec<String>) -> Result {
    let mut collector = collector(session, &wanted, Duration::ZERO);
    read_events(session, &mut collector);
    let mut sampler = Sampler::new(wanted);
    sample(session, &mut sampler, &mut collector);
    session.backend.pause(SECOND);
    let uptime = sample(session, &mut sampler, &mut collector);
    let text = serde_json::to_string_pretty(&collector.facts(uptime)).map_err(|e| Failure::failed(e.to_string()))?;
    session.console.raw_out(&format!("{text}\n"));
    let missing: Vec<String> = collector.missing().map(|name| no_group(name)).collect();
    missing.iter().for_each(|sentence| session.console.complain(sentence));
    if missing.is_empty() { Ok(()) } else { Err(Failure::Told) }
}

/// Runs until the process is ended. A group that is missing now may exist later.
fn again_and_again(session: &mut Session<'_>, path: &str, wanted: Vec<String>) -> Result {
    let mut collector = collector(session, &wanted, EVERY);
    if let Ok(Ok(before)) = facts::read(Path::new(path)) {
        collector.go_on(&before, facts::uptime());
    }
    // Follows before it reads the existing events, so that no event is missed.
    let news = follow(session.backend.follow());
    read_events(session, &mut collector);
    let mut sampler = Sampler::lasting(wanted);
    loop {
        let uptime = sample(session, &mut sampler, &mut collector);
        news.try_iter().flatten().for_each(|(uuid, lines)| collector.events.add(&uuid, &lines));
        let text = serde_json::to_string(&collector.facts(uptime)).map_err(|e| Failure::failed(e.to_string()))?;
        session.backend.publish(path, &text).map_err(Failure::from)?;
        session.backend.pause(EVERY);
    }
}

type News = Vec<(String, Vec<u8>)>;

/// Follows events in its own thread: their files may be on a device that hangs, and the rest must continue.
fn follow(mut next: Follow) -> Receiver<News> {
    let (sender, receiver) = channel();
    // Without the thread the document has only the earlier events.
    let _events_stand_still = std::thread::Builder::new().name("rowen-events".into()).spawn(move || {
        while let Some(news) = next() {
            if !news.is_empty() && sender.send(news).is_err() {
                break;
            }
            std::thread::sleep(SECOND);
        }
    });
    receiver
}
