//! Requests that a group's server carries out while the command does something else.
//!
//! * AH1 Answers come in the order of the requests, each once. So many requests are under way at most that their bytes
//!   are bounded. After one that failed nothing is given out.

use crate::backend::{Answer, Answered, Asker, Trouble, answered};
use crate::session::Session;
use rowen_control::protocol::{ErrorKind, Outcome, Request};
use rowen_engine::planted;
use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, Sender, channel};

struct Worker {
    requests: Sender<Request>,
    answers: Receiver<Answered>,
}

/// Requests to one group that are under way.
pub struct Ahead {
    group: String,
    workers: Vec<Worker>,
    /// The worker that has each of them; without workers the requests themselves, which wait until they are taken.
    under_way: VecDeque<Where>,
    given: usize,
}

enum Where {
    Here(Request),
    With(usize),
}

impl Ahead {
    /// So many requests at a time, where the host can do that.
    pub fn new(session: &mut Session<'_>, group: &str, at_once: usize) -> Ahead {
        let askers = (0..at_once).map_while(|_| session.backend.asker(group));
        Ahead::with(group, askers)
    }

    fn with(group: &str, askers: impl Iterator<Item = Asker>) -> Ahead {
        let workers = askers.filter_map(start).collect();
        Ahead { group: group.to_owned(), workers, under_way: VecDeque::new(), given: 0 }
    }

    /// Begins a request. Only where [`is_full`](Ahead::is_full) is false.
    pub fn give(&mut self, request: Request) -> Answer<()> {
        let place = if self.workers.is_empty() {
            Where::Here(request)
        } else {
            let at = self.given % self.workers.len();
            self.workers[at].requests.send(request).map_err(|_| lost())?;
            Where::With(at)
        };
        self.given += 1;
        self.under_way.push_back(place);
        Ok(())
    }

    /// Whether an answer has to be taken before another request is given.
    pub fn is_full(&self) -> bool {
        self.under_way.len() >= self.workers.len().max(1)
    }

    pub fn is_empty(&self) -> bool {
        self.under_way.is_empty()
    }

    /// The answer to the oldest request, which is waited for.
    pub fn take(&mut self, session: &mut Session<'_>) -> Answer<Outcome> {
        match self.next() {
            None => Err(lost()),
            Some(Where::Here(request)) => session.ask(&self.group, request),
            Some(Where::With(at)) => {
                let (shown, answer) = self.answered(at)?;
                shown.into_iter().for_each(|outcome| session.show(outcome));
                answer
            }
        }
    }

    /// Where the oldest one is.
    fn next(&mut self) -> Option<Where> {
        if planted::is("answers_as_they_come") {
            return self.under_way.pop_back();
        }
        self.under_way.pop_front()
    }

    fn answered(&self, at: usize) -> Answer<Answered> {
        self.workers[at].answers.recv().map_err(|_| lost())
    }
}

fn lost() -> Trouble {
    Trouble::other(ErrorKind::Internal, "A thread of this command has ended. What was done of it is not whole.")
}

/// None: there can be no more threads. It ends when nobody gives it requests any more.
fn start(mut asker: Asker) -> Option<Worker> {
    let (requests, to_do) = channel::<Request>();
    let (done, answers) = channel();
    let work = move || {
        for request in to_do {
            if done.send(answered(&mut asker, request)).is_err() {
                return;
            }
        }
    };
    std::thread::Builder::new().name("rowen-ahead".into()).spawn(work).ok()?;
    Some(Worker { requests, answers })
}

#[cfg(test)]
#[path = "ahead_test.rs"]
mod tests;
