//! The main loop and its threads. One thread waits for keys, one for signals, and one takes samples on request. All
//! send to one channel, and the loop waits only for that channel (TO1).

use super::draw;
use super::face::Face;
use super::keys::{self, Key};
use super::model::{Effect, Event, Model};
use super::sample::{Labels, Sample};
use super::screen::{self, Screen};
use crate::backend::Surveyor;
use crate::failure::{Failure, Result, exit};
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use rowen_control::status::{Depth, Survey};
use rowen_engine::planted;
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGTERM, SIGTSTP};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Rates need two samples, so the second follows the first soon.
const SOON: Duration = Duration::from_secs(1);
/// The interval of reading devices, and of requesting all volumes of groups.
const LABELS_EVERY: Duration = Duration::from_secs(10);
const LASTING_LABELS_EVERY: Duration = Duration::from_secs(60);
const VOLUMES_EVERY: Duration = Duration::from_secs(5);
/// The interval at which the frame shows that a sample is not finished.
const TICK: Duration = Duration::from_secs(1);

/// The program ends at most this long after a signal, whatever it waits for.
const UNHEARD: Duration = Duration::from_secs(2);

/// What the threads send.
enum News {
    Terminal(crossterm::event::Event),
    Sampled(Sample),
    /// By this signal.
    Ends(i32),
    Suspends,
    Continues,
    /// The terminal cannot be read any more.
    Gone,
}

/// Takes samples, and keeps the data that need not be read each time.
pub struct Sampler {
    wanted: Vec<String>,
    labels: Labels,
    labels_every: Duration,
    labels_at: Option<Instant>,
    volumes_at: Option<Instant>,
}

impl Sampler {
    pub fn new(wanted: Vec<String>) -> Sampler {
        let labels = Labels::default();
        Sampler { wanted, labels, labels_every: LABELS_EVERY, labels_at: None, volumes_at: None }
    }

    /// For samples over a long time: it must not keep idle devices from sleeping.
    pub fn lasting(wanted: Vec<String>) -> Sampler {
        Sampler { labels_every: LASTING_LABELS_EVERY, ..Sampler::new(wanted) }
    }

    pub fn sample(&mut self, survey_groups: &mut dyn FnMut(&[String], Depth) -> Survey, time: u64) -> Sample {
        let is_due = |at: Option<Instant>, every: Duration| at.is_none_or(|at| at.elapsed() >= every);
        let devices = is_due(self.labels_at, self.labels_every);
        let reports = is_due(self.volumes_at, VOLUMES_EVERY);
        let mut survey = survey_groups(&self.wanted, Depth { counters: true, reports, devices });
        if devices {
            self.labels = Labels::of(&survey);
            self.labels_at = Some(Instant::now());
        } else {
            self.labels.add_to(&mut survey);
        }
        if reports {
            self.volumes_at = Some(Instant::now());
        }
        Sample::new(survey, time)
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn failed(what: &str) -> impl Fn(std::io::Error) -> Failure {
    move |error| Failure::failed(format!("{what}: {error}."))
}

/// Shows the view until the user ends it.
pub fn run(mut surveyor: Surveyor, face: Face, host: String, wanted: Vec<String>) -> Result {
    let size = crossterm::terminal::size().map_err(failed("The size of the terminal cannot be read"))?;
    // From here on the thread receives signals, so that none of them ends the program with the terminal in raw mode.
    let signals = Signals::new([SIGTERM, SIGINT, SIGHUP, SIGTSTP, SIGCONT]);
    let signals = signals.map_err(failed("Signals cannot be waited for"))?;
    give_back_on_panic();
    let screen = Screen::take().map_err(failed("The terminal cannot be used"))?;
    let (sender, receiver) = channel();
    let (ask, asked) = channel::<()>();
    let started = start("rowen-keys", {
        let sender = sender.clone();
        move || bring_keys(&sender)
    })
    .and_then(|()| {
        start("rowen-signals", {
            let sender = sender.clone();
            move || bring_signals(signals, &sender)
        })
    })
    .and_then(|()| {
        let mut sampler = Sampler::new(wanted.clone());
        start("rowen-sampler", move || {
            // Ends when no one asks any more.
            while asked.recv().is_ok() && sender.send(News::Sampled(sampler.sample(&mut surveyor, now()))).is_ok() {}
        })
    });
    started.map_err(failed("A thread cannot be started"))?;
    let model = Model::new(face, host, wanted, size);
    let mut top = Top { model, screen, receiver, ask, begun: Instant::now(), asked: None, next: Instant::now() };
    let ended = top.run();
    drop(top);
    if let Some(signal) = ended.map_err(failed("The terminal cannot be written to"))? {
        // The sender must see that the signal ended the program.
        emulate_default_handler(signal).map_err(failed("The signal cannot be obeyed"))?;
    }
    Ok(())
}

fn start(name: &str, work: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    std::thread::Builder::new().name(name.to_owned()).spawn(work).map(drop)
}

/// A panic of any thread restores the terminal and ends the program.
fn give_back_on_panic() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        screen::give_back();
        before(panic);
        std::process::exit(i32::from(exit::FAILED));
    }));
}

fn bring_keys(sender: &Sender<News>) {
    loop {
        let news = crossterm::event::read().map_or(News::Gone, News::Terminal);
        let is_end = matches!(news, News::Gone);
        if sender.send(news).is_err() || is_end {
            return;
        }
    }
}

fn bring_signals(mut signals: Signals, sender: &Sender<News>) {
    for signal in signals.forever() {
        let news = match signal {
            SIGTSTP => News::Suspends,
            SIGCONT => News::Continues,
            signal => News::Ends(signal),
        };
        let is_end = matches!(news, News::Ends(_));
        if sender.send(news).is_err() {
            return;
        }
        if is_end {
            // The terminal may accept no more text, and the thread that draws waits for it. The modes can be restored
            // all the same.
            std::thread::sleep(UNHEARD);
            let _may_be_gone = crossterm::terminal::disable_raw_mode();
            let _not_refused = emulate_default_handler(signal);
        }
    }
}

struct Top {
    model: Model,
    screen: Screen,
    receiver: Receiver<News>,
    ask: Sender<()>,
    begun: Instant,
    /// When the present sample began.
    asked: Option<Instant>,
    /// When the next one is due.
    next: Instant,
}

impl Top {
    /// Runs until the user or a signal ends it.
    fn run(&mut self) -> std::io::Result<Option<i32>> {
        self.draw()?;
        loop {
            self.ask_if_due();
            let until = match self.asked {
                Some(_) => TICK,
                None if self.model.is_paused => Duration::from_secs(3600),
                None => self.next.saturating_duration_since(Instant::now()),
            };
            let effect = match self.receiver.recv_timeout(until) {
                Ok(News::Ends(signal)) => return Ok(Some(signal)),
                Ok(News::Gone) | Err(RecvTimeoutError::Disconnected) => Effect::Quit,
                Ok(News::Suspends) => Effect::Suspend,
                Ok(News::Continues) => {
                    // Another program may have changed the terminal meanwhile.
                    self.screen.take_again()?;
                    Effect::Redraw
                }
                Ok(News::Terminal(event)) => self.key(&event),
                Ok(News::Sampled(sample)) => self.sampled(sample),
                Err(RecvTimeoutError::Timeout) => {
                    let waits = self.asked.map_or(0, |asked| asked.elapsed().as_secs());
                    self.update(Event::Waits(waits))
                }
            };
            match effect {
                Effect::Quit => return Ok(None),
                Effect::Suspend => self.suspend()?,
                Effect::Redraw => self.screen.forget(),
                Effect::LookNow => self.next = Instant::now(),
                Effect::Draw => {}
            }
            self.draw()?;
        }
    }

    fn ask_if_due(&mut self) {
        let is_due = !self.model.is_paused && self.next <= Instant::now();
        if self.asked.is_none() && is_due && self.ask.send(()).is_ok() {
            self.asked = Some(Instant::now());
            if planted::is("waits_for_sample") {
                self.wait_for_sample();
            }
        }
    }

    /// The mistake that TO1 forbids.
    fn wait_for_sample(&mut self) {
        while let Ok(news) = self.receiver.recv() {
            if let News::Sampled(sample) = news {
                self.sampled(sample);
                return;
            }
        }
    }

    fn update(&mut self, event: Event) -> Effect {
        self.model.update(event, &draw::shown)
    }

    fn key(&mut self, event: &crossterm::event::Event) -> Effect {
        match event {
            crossterm::event::Event::Key(key) => match keys::meaning(*key) {
                Some(key) => {
                    let effect = self.update(Event::Key(key));
                    if key == Key::Interval {
                        self.next = self.next.min(Instant::now() + self.interval());
                    }
                    effect
                }
                None => Effect::Draw,
            },
            crossterm::event::Event::Resize(width, height) => self.update(Event::Resized(*width, *height)),
            _ => Effect::Draw,
        }
    }

    fn sampled(&mut self, sample: Sample) -> Effect {
        let is_first = self.model.time.is_none();
        let asked = self.asked.take().unwrap_or_else(Instant::now);
        self.next = asked + if is_first { SOON } else { self.interval() };
        self.update(Event::Sampled { sample, at: self.begun.elapsed().as_secs_f64() })
    }

    fn interval(&self) -> Duration {
        Duration::from_secs(self.model.interval())
    }

    /// Stops as Ctrl-Z stops a program, and continues later.
    fn suspend(&mut self) -> std::io::Result<()> {
        screen::give_back();
        emulate_default_handler(SIGTSTP)?;
        self.screen.take_again()?;
        let size = crossterm::terminal::size()?;
        self.update(Event::Resized(size.0, size.1));
        self.next = Instant::now();
        Ok(())
    }

    fn draw(&mut self) -> std::io::Result<()> {
        let (width, height) = self.model.size;
        let mut frame = Buffer::empty(Rect::new(0, 0, width, height));
        draw::frame(&self.model, &mut frame);
        self.screen.show(&frame)
    }
}
