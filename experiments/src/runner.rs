//! A run: each experiment on the host, in user-mode-linux, and recorded there for the modelled disks; lines as they come.

use crate::book::{ALL_SYSTEMS, Book};
use crate::catalogue::Experiment;
use crate::command::{self, INTERRUPTED, Result};
use crate::context::{Context, Disks, Event, Form, Key, Quantity};
use crate::files::{Loop, Scratch, written};
use crate::measurement::{Measurement, Origin, Run, Series};
use crate::model::hdd::{BARRACUDA_ES, Hdd};
use crate::model::ssd::{Ssd, X25_M};
use crate::model::{Disk, replay};
use crate::progress::Progress;
use crate::report;
use crate::stack::System;
use crate::trace::{self, Request};
use crate::uml::{self, Plan};
use std::cell::RefCell;
use std::collections::HashMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

pub const HOST: &str = "host";
pub const INSIDE: &str = "user-mode-linux";

/// What a run was asked for.
pub struct Options {
    pub form: Form,
    /// MiB of large writes, if not the form's own.
    pub mib: Option<u64>,
    pub dir: PathBuf,
    pub rowen: PathBuf,
    /// Where lines, page and tables are.
    pub out: PathBuf,
    /// Where records for the modelled disks are kept, if they are.
    pub records: Option<PathBuf>,
    pub revision: String,
    /// Which of the passes are made.
    pub passes: Vec<Pass>,
    /// Whether the experiments were asked for by their names.
    pub by_name: bool,
    /// Leaves out what such a run has found already.
    pub resume: bool,
}

/// The file of the lines.
pub const LINES: &str = "measurements.jsonl";

/// A part may take this many seconds, and this many times what it takes on a quiet machine.
const SPARE: f64 = 45.0;
const SLACK: f64 = 2.5;
/// What a turn that began in time may take beyond, and what tidying up may take in user-mode-linux: seconds.
const LAST_TURN: f64 = 30.0;
const TIDYING: f64 = 90.0;

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

    /// The places that its lines name.
    pub fn places(self) -> &'static [&'static str] {
        match self {
            Pass::Host => &[HOST],
            Pass::Inside => &[INSIDE],
            Pass::Model => &[BARRACUDA_ES.name, X25_M.name],
        }
    }
}

/// What a part has to say, as lines.
struct Sink {
    run: Run,
    lines: Vec<Measurement>,
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
        self.lines.push(Measurement { question, series, figure, reason, round, run: self.run.clone() });
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

/// Runs the experiments, enters the lines of each part and makes the report again at the end. Gives what failed; what the
/// others found is kept.
pub fn run(options: &Options, chosen: &[&'static Experiment], progress: &Rc<RefCell<Progress>>) -> Result<Vec<String>> {
    let mut book = Book::open(&options.out.join(LINES))?;
    let mut failures = Vec::new();
    for experiment in chosen {
        for pass in options.passes.iter().filter(|pass| experiment.passes.contains(pass)) {
            let mib = options.mib.unwrap_or_else(|| experiment.mib_of(*pass, &options.form));
            let form = Form { mib, ..options.form };
            let expected = experiment.seconds_of(*pass, &form);
            let run = Run::here(&options.revision, form.quick);
            let name = format!("{}, {}", experiment.name, pass.name());
            if options.resume && book.has(experiment.name, *pass, &run) {
                progress.borrow_mut().leave_out(expected);
                progress.borrow_mut().line(&format!("{name}: there already"));
                continue;
            }
            match experiment.has(*pass, &form, options.by_name) {
                true => progress.borrow_mut().begin(expected),
                false => progress.borrow_mut().begin(0.0),
            }
            let begun = Instant::now();
            let sink = Rc::new(RefCell::new(Sink { run, lines: Vec::new() }));
            let scratch = Scratch::new(&options.dir)?;
            // It hangs, or the machine is busy, if it takes more.
            let seconds = SPARE + SLACK * expected;
            let part = Part { options, experiment, form, scratch: &scratch, sink: &sink, progress, seconds };
            let outcome = match pass {
                _ if !experiment.has(*pass, &form, options.by_name) => part.left_out(pass.places()),
                Pass::Host => part.on_host(),
                Pass::Inside => part.inside(),
                Pass::Model => part.modelled(),
            };
            if let Err(why) = &outcome {
                let all = Series { system: ALL_SYSTEMS.to_owned(), ..part.unknown(pass.places()[0]) };
                sink.borrow_mut().add(experiment, all, None, Some(why.clone()), 0);
            }
            let lines = std::mem::take(&mut sink.borrow_mut().lines);
            let entered = book.enter(experiment.name, Some(*pass), lines)?;
            book.enter(experiment.name, None, published(experiment, &sink.borrow().run))?;
            report::write(book.lines(), &options.out)?;
            let took = begun.elapsed().as_secs_f64();
            let note = if entered { "" } else { "; the figures of an earlier run stay" };
            progress.borrow_mut().line(&format!("{name}: {took:.0} s ({expected:.0} s expected){note}"));
            match outcome {
                Err(why) if why == INTERRUPTED => return Err(why),
                Err(why) => {
                    let why = format!("{name}: {why}");
                    progress.borrow_mut().line(&why);
                    failures.push(why);
                }
                Ok(()) => {}
            }
        }
    }
    let lines = book.lines().len();
    progress.borrow_mut().line(&format!("{lines} lines in {}", options.out.join(LINES).display()));
    Ok(failures)
}

fn published(experiment: &Experiment, run: &Run) -> Vec<Measurement> {
    let mut sink = Sink { run: run.clone(), lines: Vec::new() };
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
    sink.lines
}

/// One pass of an experiment.
struct Part<'a> {
    options: &'a Options,
    experiment: &'static Experiment,
    form: Form,
    scratch: &'a Scratch,
    sink: &'a Rc<RefCell<Sink>>,
    progress: &'a Rc<RefCell<Progress>>,
    /// What it may take.
    seconds: f64,
}

impl Part<'_> {
    /// What has no figure at all in a place.
    fn unknown(&self, place: &str) -> Series {
        series(self.experiment, Origin::NotRun, &Key::new(System::Raw, "all", &[], 0), "", place)
    }

    /// A part that this form has no time for. It says so, and takes the place of no figures.
    fn left_out(&self, places: &[&str]) -> Result {
        for place in places {
            let all = Series { system: ALL_SYSTEMS.to_owned(), ..self.unknown(place) };
            let why = if self.experiment.is_long {
                "it is long, and run by name only"
            } else {
                "the quick form has it by name only"
            };
            let why = why.to_owned();
            self.sink.borrow_mut().add(self.experiment, all, None, Some(why), 0);
        }
        Ok(())
    }

    fn on_host(&self) -> Result {
        let [raw, rowen, rowen_mirror] =
            ["raw.img", "rowen.img", "rowen-mirror.img"].map(|name| self.scratch.0.join(name));
        let sizes = (self.experiment.sizes)(&self.form);
        written(&raw, sizes.raw)?;
        written(&rowen, sizes.rowen)?;
        written(&rowen_mirror, sizes.rowen_mirror)?;
        let device = Loop::new(&raw)?;
        let (experiment, sink, progress) = (self.experiment, self.sink.clone(), self.progress.clone());
        let context = Context {
            form: self.form,
            dir: self.scratch.0.clone(),
            disks: Disks { raw: device.0.clone(), rowen, rowen_mirror, lvm: None },
            rowen: self.options.rowen.clone(),
            systems: experiment.systems.iter().copied().filter(|system| !system.is_lvm()).collect(),
            recording: false,
            seconds: self.seconds,
            tell: Box::new(move |event| note(experiment, event, HOST, &sink, &progress)),
        };
        command::within(self.seconds + LAST_TURN, || (experiment.body)(&context))
    }

    fn inside(&self) -> Result {
        let mut on_event = |event: Event| note(self.experiment, &event, INSIDE, self.sink, self.progress);
        self.booted(INSIDE, false, &mut on_event).map(drop)
    }

    /// Records the body's I/O in user-mode-linux and replays it on the modelled disks.
    fn modelled(&self) -> Result {
        let mut sections = Vec::new();
        let mut on_event = |event: Event| match event {
            Event::Section { .. } => sections.push(event),
            Event::NotRun { .. } => {
                for place in [BARRACUDA_ES.name, X25_M.name] {
                    note(self.experiment, &event, place, self.sink, self.progress);
                }
            }
            Event::Step { .. } => note(self.experiment, &event, "recording", self.sink, self.progress),
            _ => {}
        };
        if !self.booted(BARRACUDA_ES.name, true, &mut on_event)? {
            return Ok(());
        }
        if let Some(dir) = &self.options.records {
            uml::keep_records(&self.scratch.0, &dir.join(self.experiment.name))?;
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

    /// Runs the body in user-mode-linux. False if it is not available; then the lines of this place say so.
    fn booted(&self, place: &str, recording: bool, on_event: &mut dyn FnMut(Event)) -> Result<bool> {
        let experiment = self.experiment;
        if let Some(why) = uml::missing() {
            // The others have figures of the host, if the experiment is run there.
            let is_lost = |system: &&System| system.is_lvm() || !experiment.passes.contains(&Pass::Host);
            for system in experiment.systems.iter().filter(is_lost) {
                let series = Series { system: system.name().to_owned(), ..self.unknown(place) };
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
            seconds: self.seconds,
            events: self.scratch.0.join(uml::EVENTS),
        };
        // It ends by itself; if it cannot even do that, it is ended.
        let limit = Duration::from_secs_f64(self.seconds + LAST_TURN + TIDYING);
        uml::run(&self.scratch.0, &plan, (experiment.sizes)(&self.form), limit, on_event).map(|()| true)
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
        seconds: plan.seconds,
        tell: Box::new(move |event| uml::say(&events, event)),
    };
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    (context.tell)(&Event::Kernel(format!("{} ({INSIDE})", release.trim())));
    let made = std::fs::create_dir_all(&context.dir).map_err(|e| format!("{}: {e}", context.dir.display()));
    let outcome = made.and_then(|()| command::within(plan.seconds + LAST_TURN, || (experiment.body)(&context)));
    (context.tell)(&match &outcome {
        Ok(()) => Event::Finished,
        Err(why) => Event::Failed(why.clone()),
    });
    outcome
}
