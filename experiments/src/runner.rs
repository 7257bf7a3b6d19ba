//! A run: each experiment on the host, in user-mode-linux, and recorded there for the modelled disks; lines as they come.

use crate::catalogue::Experiment;
use crate::command::{self, INTERRUPTED, Result};
use crate::context::{Context, Disks, Event, Form, Key, Quantity};
use crate::files::{Loop, Scratch, written};
use crate::measurement::{Measurement, Origin, Run, Series};
use crate::model::hdd::{BARRACUDA_ES, Hdd};
use crate::model::ssd::{Ssd, X25_M};
use crate::model::{Disk, replay};
use crate::progress::Progress;
use crate::stack::System;
use crate::trace::{self, Request};
use crate::uml::{self, Plan};
use std::cell::RefCell;
use std::collections::HashMap;
use std::io::Write;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

pub const HOST: &str = "host";
pub const INSIDE: &str = "user-mode-linux";

/// What a run was asked for.
pub struct Options {
    pub form: Form,
    /// MiB of large writes, if not the form's own.
    pub mib: Option<u64>,
    pub dir: PathBuf,
    pub rowen: PathBuf,
    pub results: PathBuf,
    pub revision: String,
    /// Which of the passes are made.
    pub passes: Vec<Pass>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    Host,
    Inside,
    Model,
}

impl Pass {
    pub const ALL: [Pass; 3] = [Pass::Host, Pass::Inside, Pass::Model];

    pub fn name(self) -> &'static str {
        match self {
            Pass::Host => "host",
            Pass::Inside => "uml",
            Pass::Model => "model",
        }
    }

    /// How much of an experiment's time it takes, beside the others.
    pub fn share(self) -> f64 {
        match self {
            Pass::Host => 0.3,
            Pass::Inside => 0.5,
            Pass::Model => 0.2,
        }
    }
}

/// Where the lines go.
struct Sink {
    file: std::fs::File,
    run: Run,
    lines: usize,
    failed: Option<String>,
}

impl Sink {
    fn add(
        &mut self,
        experiment: &Experiment,
        series: Series,
        figure: Option<f64>,
        reason: Option<String>,
        round: usize,
    ) {
        let question = experiment.question.to_owned();
        let line = Measurement { question, series, figure, reason, round, run: self.run.clone() };
        let text = serde_json::to_string(&line).map_err(|e| e.to_string());
        let written = text.and_then(|text| writeln!(self.file, "{text}").map_err(|e| e.to_string()));
        match written {
            Ok(()) => self.lines += 1,
            Err(why) => self.failed = Some(why),
        }
    }
}

fn series(experiment: &Experiment, origin: Origin, key: &Key, unit: &str, place: &str) -> Series {
    Series {
        experiment: experiment.name.to_owned(),
        origin,
        metric: key.metric.clone(),
        unit: unit.to_owned(),
        system: key.system.name().to_owned(),
        place: place.to_owned(),
        parameters: key.parameters.clone(),
    }
}

/// Runs the experiments and writes the lines. Gives what failed; what the others found is kept.
pub fn run(options: &Options, chosen: &[&'static Experiment], progress: &Rc<RefCell<Progress>>) -> Result<Vec<String>> {
    let file = std::fs::File::create(&options.results);
    let file = file.map_err(|e| format!("cannot write {}: {e}", options.results.display()))?;
    let here = Run::here(&options.revision, options.form.quick);
    let sink = Rc::new(RefCell::new(Sink { file, run: here, lines: 0, failed: None }));
    let mut failures = Vec::new();
    for experiment in chosen {
        let mib = options.mib.unwrap_or(match options.form {
            Form { smoke: true, .. } => experiment.mib[0],
            Form { quick: true, .. } => experiment.mib[1],
            _ => experiment.mib[2],
        });
        let form = Form { mib, ..options.form };
        published(experiment, &mut sink.borrow_mut());
        for pass in options.passes.iter().filter(|pass| experiment.passes.contains(pass)) {
            progress.borrow_mut().begin(experiment.seconds_of(*pass, &form));
            let scratch = Scratch::new(&options.dir)?;
            let part = Part { options, experiment, form, scratch: &scratch, sink: &sink, progress };
            let outcome = match pass {
                Pass::Host => part.on_host(),
                Pass::Inside => part.inside(),
                Pass::Model => part.modelled(),
            };
            match outcome {
                Ok(()) => {}
                Err(why) if why == INTERRUPTED => return Err(why),
                Err(why) => {
                    let why = format!("{} ({}): {why}", experiment.name, pass.name());
                    progress.borrow_mut().line(&why);
                    failures.push(why);
                }
            }
        }
        if let Some(why) = &sink.borrow().failed {
            return Err(format!("cannot write {}: {why}", options.results.display()));
        }
    }
    let lines = sink.borrow().lines;
    progress.borrow_mut().line(&format!("{lines} lines in {}", options.results.display()));
    Ok(failures)
}

fn published(experiment: &Experiment, sink: &mut Sink) {
    for figure in (experiment.published)() {
        let series = Series {
            experiment: experiment.name.to_owned(),
            origin: Origin::Published,
            metric: figure.metric.to_owned(),
            unit: figure.unit.to_owned(),
            system: figure.system.to_owned(),
            place: "document".to_owned(),
            parameters: figure.parameters.iter().map(|(k, v)| ((*k).to_owned(), v.clone())).collect(),
        };
        sink.add(experiment, series, Some(figure.figure), None, 0);
    }
}

/// One pass of an experiment.
struct Part<'a> {
    options: &'a Options,
    experiment: &'static Experiment,
    form: Form,
    scratch: &'a Scratch,
    sink: &'a Rc<RefCell<Sink>>,
    progress: &'a Rc<RefCell<Progress>>,
}

impl Part<'_> {
    fn on_host(&self) -> Result {
        let [raw, rowen] = ["raw.img", "rowen.img"].map(|name| self.scratch.0.join(name));
        let sizes = (self.experiment.sizes)(&self.form);
        written(&raw, sizes.raw)?;
        written(&rowen, sizes.rowen)?;
        let device = Loop::new(&raw)?;
        let (experiment, sink, progress) = (self.experiment, self.sink.clone(), self.progress.clone());
        let context = Context {
            form: self.form,
            dir: self.scratch.0.clone(),
            disks: Disks { raw: device.0.clone(), rowen, lvm: None },
            rowen: self.options.rowen.clone(),
            systems: experiment.systems.iter().copied().filter(|system| !system.is_lvm()).collect(),
            recording: false,
            tell: Box::new(move |event| note(experiment, event, HOST, &sink, &progress)),
        };
        (experiment.body)(&context)
    }

    fn inside(&self) -> Result {
        let kernel = self.sink.borrow().run.kernel.clone();
        let mut told = |event: Event| note(self.experiment, &event, INSIDE, self.sink, self.progress);
        let outcome = self.booted(INSIDE, false, &mut told);
        self.sink.borrow_mut().run.kernel = kernel;
        outcome.map(drop)
    }

    /// Records the body's I/O in user-mode-linux and replays it on the modelled disks.
    fn modelled(&self) -> Result {
        let mut sections = Vec::new();
        let mut told = |event: Event| match event {
            Event::Section { .. } => sections.push(event),
            Event::NotRun { .. } => {
                for place in [BARRACUDA_ES.name, X25_M.name] {
                    note(self.experiment, &event, place, self.sink, self.progress);
                }
            }
            Event::Step { .. } => note(self.experiment, &event, "recording", self.sink, self.progress),
            _ => {}
        };
        if !self.booted(BARRACUDA_ES.name, true, &mut told)? {
            return Ok(());
        }
        let mut records: HashMap<System, Vec<Request>> = HashMap::new();
        for system in self.experiment.systems {
            records.insert(*system, uml::record_of(&self.scratch.0, *system)?);
        }
        for event in &sections {
            command::go_on()?;
            let Event::Section { key, quantity, begin, end } = event else { continue };
            let Some(record) = records.get(&key.system) else { continue };
            let requests = trace::between(record, *begin, *end);
            if requests.is_empty() {
                return Err(format!("nothing was recorded of {} ({:?})", key.system, key.parameters));
            }
            let disks: [(&str, Box<dyn Disk>); 2] =
                [(BARRACUDA_ES.name, Box::new(Hdd::new(BARRACUDA_ES))), (X25_M.name, Box::new(Ssd::new(X25_M)))];
            for (place, mut disk) in disks {
                let replayed = replay(&mut *disk, requests);
                // What moved many bytes is over when they are on the medium, a request when it is answered.
                let nanos = match quantity {
                    Quantity::Bytes(_) => replayed.drained,
                    _ => replayed.answered,
                };
                let series = series(self.experiment, Origin::Modelled, key, quantity.unit(), place);
                let figure = quantity.figure(nanos as f64 / 1e9);
                self.sink.borrow_mut().add(self.experiment, series, Some(figure), None, key.round);
            }
        }
        Ok(())
    }

    /// Runs the body in user-mode-linux. False if there is none here; then the lines of this place say so.
    fn booted(&self, place: &str, recording: bool, told: &mut dyn FnMut(Event)) -> Result<bool> {
        let experiment = self.experiment;
        if let Some(why) = uml::missing() {
            for system in experiment.systems.iter().filter(|system| system.is_lvm()) {
                let series = series(experiment, Origin::NotRun, &Key::new(*system, "all", &[], 0), "", place);
                self.sink.borrow_mut().add(experiment, series, None, Some(why.clone()), 0);
            }
            return Ok(false);
        }
        let rowen = &self.options.rowen;
        let plan = Plan {
            experiment: experiment.name.to_owned(),
            form: self.form,
            systems: experiment.systems.to_vec(),
            rowen: rowen.canonicalize().map_err(|e| format!("{}: {e}", rowen.display()))?,
            recording,
            events: self.scratch.0.join("events.jsonl"),
        };
        // It hangs if it takes many times what is expected of it on a quiet machine, and some for booting.
        let seconds = 120.0 + 8.0 * experiment.seconds[usize::from(!self.form.quick)];
        let limit = Duration::from_secs_f64(seconds);
        uml::run(&self.scratch.0, &plan, (experiment.sizes)(&self.form), limit, told).map(|()| true)
    }
}

/// What a body says becomes lines and progress.
fn note(
    experiment: &Experiment,
    event: &Event,
    place: &str,
    sink: &Rc<RefCell<Sink>>,
    progress: &Rc<RefCell<Progress>>,
) {
    match event {
        Event::Figure { key, unit, figure } => {
            let series = series(experiment, event.origin(), key, unit, place);
            sink.borrow_mut().add(experiment, series, Some(*figure), None, key.round);
        }
        Event::NotRun { key, unit, reason } => {
            let series = series(experiment, event.origin(), key, unit, place);
            sink.borrow_mut().add(experiment, series, None, Some(reason.clone()), key.round);
        }
        Event::Step { what, done } => {
            progress.borrow_mut().step(&format!("{}, {place}: {what}", experiment.name), *done);
        }
        Event::Kernel(release) => sink.borrow_mut().run.kernel = release.clone(),
        Event::Section { .. } | Event::Failed(_) | Event::Finished => {}
    }
}

/// One part, inside user-mode-linux.
pub fn run_inside(plan: &Plan) -> Result {
    let experiment = crate::catalogue::find(&plan.experiment).ok_or("there is no such experiment")?;
    let events = plan.events.clone();
    let context = Context {
        form: plan.form,
        dir: PathBuf::from("/run/experiment"),
        disks: uml::disks_inside(plan.recording),
        rowen: plan.rowen.clone(),
        systems: plan.systems.clone(),
        recording: plan.recording,
        tell: Box::new(move |event| uml::say(&events, event)),
    };
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    (context.tell)(&Event::Kernel(format!("{} ({INSIDE})", release.trim())));
    let made = std::fs::create_dir_all(&context.dir).map_err(|e| format!("{}: {e}", context.dir.display()));
    let outcome = made.and_then(|()| (experiment.body)(&context));
    (context.tell)(&match &outcome {
        Ok(()) => Event::Finished,
        Err(why) => Event::Failed(why.clone()),
    });
    outcome
}
