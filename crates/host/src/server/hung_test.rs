//! Which disks hang (DT1), by a clock of the test.

use super::*;
use std::sync::atomic::AtomicBool;

const LIMIT: Duration = Duration::from_secs(30);

/// A disk, looked at every 1.5 seconds of a clock.
#[derive(Default)]
struct Life {
    patience: Patience,
    questions: Vec<Arc<AtomicBool>>,
}

impl Life {
    /// Looks at it for so many seconds of silence. Returns when it hung first.
    fn is_silent(&mut self, seconds: std::ops::Range<u32>) -> Option<Duration> {
        let looks = (seconds.start * 2..seconds.end * 2).step_by(3).map(|half| Duration::from_millis(500) * half);
        looks.map(|silent| self.look(Some(silent))).fold(None, |first, step| match step {
            Step::Hangs(silence) => first.or(Some(silence)),
            _ => first,
        })
    }

    fn look(&mut self, silent: Option<Duration>) -> Step {
        let step = self.patience.look(silent, LIMIT);
        if step == Step::Ask {
            let question = Arc::new(AtomicBool::new(false));
            self.questions.push(question.clone());
            self.patience.asked = Some((Question::OnThread(question), 0));
        }
        step
    }
}

#[test]
fn one_that_answers_nothing_hangs_after_its_time() {
    let mut life = Life::default();
    let hung = life.is_silent(1..60).unwrap();
    assert!(hung >= LIMIT && hung < LIMIT + Duration::from_secs(2), "{hung:?}");
    assert_eq!(life.questions.len(), 1);
}

#[test]
fn one_that_answers_requests_is_slow() {
    let mut life = Life::default();
    for _ in 0..10 {
        assert_eq!(life.is_silent(1..29), None);
        assert_eq!(life.look(None), Step::Wait);
        // The same if this look came when it was silent again.
        assert_eq!((life.is_silent(1..29), life.is_silent(1..29)), (None, None));
    }
}

fn one_that_answers_a_question_is_slow() {
    let mut life = Life::default();
    assert_eq!(life.is_silent(1..20), None);
    life.questions[0].store(true, Ordering::Release);
    assert_eq!(life.is_silent(20..45), None, "its time begins again");
    assert_eq!(life.questions.len(), 2);
    assert!(life.is_silent(45..60).is_some(), "it has not answered the second one");
}

#[test]
fn a_disk_with_a_request_that_takes_long_is_asked() {
    one_that_answers_a_question_is_slow();
}

#[test]
fn to_leave_a_slow_disk_is_found() {
    planted::must_be_found("slow_is_hung", one_that_answers_a_question_is_slow);
}

/// A process that was stopped looks late, and finds the answers later.
#[test]
fn one_is_not_judged_by_the_time_alone() {
    let mut life = Life::default();
    assert_eq!(life.look(Some(Duration::ZERO)), Step::Wait);
    assert_eq!(life.look(Some(10 * LIMIT)), Step::Ask);
    for _ in 0..LOOKS / 2 - 1 {
        assert_eq!(life.look(Some(10 * LIMIT)), Step::Wait);
    }
    assert_eq!(life.look(Some(10 * LIMIT)), Step::Hangs(10 * LIMIT));
}

#[test]
fn the_answer_of_one_that_was_reported_is_reported() {
    let mut life = Life::default();
    assert!(life.is_silent(1..50).is_some());
    life.patience.is_told = true;
    assert!(matches!(life.look(None), Step::Answers(after) if after > LIMIT));
    assert_eq!(life.look(None), Step::Wait);
}
