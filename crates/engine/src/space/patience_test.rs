//! Rule W1.

use super::*;
use crate::planted::must_be_found;

const MINUTE: Duration = Duration::from_secs(60);

#[test]
fn a_time_begins_once_and_ends_with_room() {
    let (patience, pool) = (Patience::default(), Some("p".to_owned()));
    assert_eq!(patience.hold(&pool), Verdict::Wait, "without a limit nothing ever fails");
    assert!(!patience.is_tried());
    patience.set_limit(Some(MINUTE));
    assert_eq!(patience.hold(&pool), Verdict::First(1, MINUTE));
    assert_eq!(patience.hold(&pool), Verdict::Wait);
    assert_eq!(patience.hold(&None), Verdict::First(2, MINUTE), "the group's space is another matter");
    assert!(patience.end(&pool, 1) && patience.is_tried());
    assert_eq!((patience.hold(&pool), patience.hold(&None)), (Verdict::Fail, Verdict::Wait));
    assert_eq!(patience.over(), vec![pool.clone()]);
    assert!(patience.room("p") && !patience.room("p"));
    assert!(!patience.is_tried() && patience.over().is_empty());
    // Another time has begun: the first one's end is nothing to it.
    assert_eq!(patience.hold(&pool), Verdict::First(3, MINUTE));
    assert!(!patience.end(&pool, 1));
    assert_eq!(patience.hold(&pool), Verdict::Wait);
    assert!(!patience.room("other") && patience.is_tried());
    patience.set_limit(None);
    assert_eq!(patience.hold(&pool), Verdict::Wait);
    assert!(!patience.end(&pool, 3));
}

/// A write that finds room in its pool has found it in the group, too.
#[test]
fn room_ends_the_times_of_a_pool_and_of_the_group() {
    let (patience, pool) = (Patience::default(), Some("p".to_owned()));
    patience.set_limit(Some(MINUTE));
    assert_eq!((patience.hold(&pool), patience.hold(&None)), (Verdict::First(1, MINUTE), Verdict::First(2, MINUTE)));
    assert!(patience.room("p") && !patience.is_tried(), "W1");
}

#[test]
fn a_time_that_goes_on_with_room_is_found() {
    must_be_found("one_time_ends", room_ends_the_times_of_a_pool_and_of_the_group);
}
