//! How far replay of the journal has come.

use crate::core::Core;
use crate::journal::Capture;
use crate::units::Seq;

/// How far replay has come.
pub(super) struct Replay {
    /// The journal whose records are replayed.
    pub journal_id: u64,
    /// The first record of each frame, and where the frame lies.
    pub frames: Vec<(Seq, u64)>,
    /// Records that the durable checkpoint does not contain: those from `capture` on, and these earlier ones.
    pub capture: Seq,
    pub open: Vec<u64>,
    /// The first record that is not applied, or only in part.
    pub next: Seq,
    /// Free metadata blocks, without those reserved for checkpoints, after the last checkpoint that was taken for lack
    /// of them.
    pub slack: u64,
}

impl Replay {
    /// The position for a checkpoint during replay, and the journal to which it belongs.
    pub(super) fn capture(&self, core: &Core) -> (Capture, u64) {
        let next = Seq(self.next.0 + u64::from(core.planted("small_parts_passed")));
        let frame = self.frames.partition_point(|(first, _)| *first <= next).saturating_sub(1);
        let (first, position) = self.frames.get(frame).copied().unwrap_or_default();
        let open = self.open.iter().copied().filter(|seq| *seq >= next.0 && !core.planted("small_parts_all_closed"));
        let capture = Capture::of_replay(self.capture.max(next), open.collect(), position, first);
        (capture, if core.planted("small_parts_own_journal") { core.journal.ring().id } else { self.journal_id })
    }
}
