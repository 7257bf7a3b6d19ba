//! Rule W1.

use super::*;
use crate::planted::must_be_found;

const MINUTE: Duration = Duration::from_secs(60);

#[test]
fn a_time_begins_once_and_ends_with_room() {
    let (no_space_timeout, pool) = (NoSpaceTimeout::default(), Some("p".to_owned()));
    assert_eq!(no_space_timeout.hold(&pool), Verdict::Wait, "without a limit nothing ever fails");
    assert!(!no_space_timeout.is_tried());
    no_space_timeout.set_limit(Some(MINUTE));
    assert_eq!(no_space_timeout.hold(&pool), Verdict::First(1, MINUTE));
    assert_eq!(no_space_timeout.hold(&pool), Verdict::Wait);
    assert_eq!(no_space_timeout.hold(&None), Verdict::First(2, MINUTE), "the group's space is another matter");
    assert!(no_space_timeout.end(&pool, 1) && no_space_timeout.is_tried());
    assert_eq!((no_space_timeout.hold(&pool), no_space_timeout.hold(&None)), (Verdict::Fail, Verdict::Wait));
    assert_eq!(no_space_timeout.over(), vec![pool.clone()]);
    assert!(no_space_timeout.room("p") && !no_space_timeout.room("p"));
    assert!(!no_space_timeout.is_tried() && no_space_timeout.over().is_empty());
    // Another time has begun. The end of the first one does not concern it.
    assert_eq!(no_space_timeout.hold(&pool), Verdict::First(3, MINUTE));
    assert!(!no_space_timeout.end(&pool, 1));
    assert_eq!(no_space_timeout.hold(&pool), Verdict::Wait);
    assert!(!no_space_timeout.room("other") && no_space_timeout.is_tried());
    no_space_timeout.set_limit(None);
    assert_eq!(no_space_timeout.hold(&pool), Verdict::Wait);
    assert!(!no_space_timeout.end(&pool, 3));
}

/// A write that finds room in its pool has found room in the group, too.
#[test]
fn room_ends_the_times_of_a_pool_and_of_the_group() {
    let (no_space_timeout, pool) = (NoSpaceTimeout::default(), Some("p".to_owned()));
    no_space_timeout.set_limit(Some(MINUTE));
    assert_eq!(
        (no_space_timeout.hold(&pool), no_space_timeout.hold(&None)),
        (Verdict::First(1, MINUTE), Verdict::First(2, MINUTE))
    );
    assert!(no_space_timeout.room("p") && !no_space_timeout.is_tried(), "W1");
}

#[test]
fn a_timeout_that_continues_with_room_is_found() {
    must_be_found("only_one_timeout_ends", room_ends_the_times_of_a_pool_and_of_the_group);
}
