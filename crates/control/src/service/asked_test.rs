//! What the tests of the service ask it.

use super::memory::Memory;
use crate::protocol::{Caller, ErrorKind, GroupReport, Outcome, Request};

pub fn caller() -> Caller {
    Caller { command: "test".into(), ..Caller::default() }
}

pub fn ask(world: &Memory, request: Request) -> Outcome {
    world.service.handle(request, &caller(), &mut |_| {})
}

/// What is done without a refusal.
pub fn done(world: &Memory, request: Request) -> Outcome {
    let outcome = ask(world, request.clone());
    assert!(!matches!(outcome, Outcome::Error { .. }), "{request:?}: {outcome:?}");
    outcome
}

pub fn refusal(world: &Memory, request: Request) -> (ErrorKind, String) {
    match ask(world, request.clone()) {
        Outcome::Error { kind, message } => (kind, message),
        outcome => panic!("{request:?} was not refused: {outcome:?}"),
    }
}

pub fn report(world: &Memory) -> GroupReport {
    match ask(world, Request::Report { with_use: true }) {
        Outcome::Report(report) => *report,
        outcome => panic!("{outcome:?}"),
    }
}
