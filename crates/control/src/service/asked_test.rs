//! What the tests of the service ask it.

use super::memory::Memory;
use crate::protocol::*;
use rowen_engine::units::Uuid;

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

/// A new thick volume, which is activated, on these physical volumes or anywhere.
pub fn volume(name: &str, segment: SegmentType, blocks: u64, on: &[&str]) -> Request {
    let mut id = [0; 16];
    id[..name.len()].copy_from_slice(name.as_bytes());
    let spec = VolumeSpec {
        name: name.into(),
        uuid: Uuid(id),
        kind: VolumeKind::Thick,
        segment,
        stripes: None,
        blocks,
        sector: 512,
        chunk_blocks: 1,
        full: FullPolicy::Fail,
        attributes: Attributes::default(),
    };
    let part = |path: &&str| PvPart { path: (*path).into(), first_extent: 0, extents: 40 };
    Request::CreateVolume { spec, activate: true, on: on.iter().map(part).collect() }
}
