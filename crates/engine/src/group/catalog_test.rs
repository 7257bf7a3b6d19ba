//! Rules C2, C3 and C4.

use super::*;
use crate::planted::must_be_found;

fn point(id: u64, parent: Option<u64>, charged: Option<u64>) -> TreeMeta {
    let head = empty_head(TreeId(id), Epoch(id));
    TreeMeta {
        kind: TreeKind::Point,
        epoch: Epoch(id),
        parent: parent.map(TreeId),
        charged: charged.map(VolumeId),
        ..head
    }
}

/// A point is dying while it has one child or none. What is charged to a volume goes with its point.
#[test]
fn cached_values_follow_the_trees() {
    let mut catalog = Catalog::new(9, 9, 9, GroupAttributes::default(), Arc::new(PointEpochs::new(true)));
    catalog.insert_tree(point(1, None, Some(5)));
    assert_eq!(catalog.next_removal(), Some(TreeId(1)), "C2: it has no child");
    for child in [2, 3] {
        catalog.insert_tree(point(child, Some(1), Some(5)));
        catalog.add_child(Some(TreeId(1)), TreeId(child));
        (0..2).for_each(|head| catalog.add_child(Some(TreeId(child)), TreeId(10 * child + head)));
    }
    assert_eq!((catalog.next_removal(), catalog.is_consistent()), (None, true), "C2, C4");
    assert_eq!(catalog.charged_to(VolumeId(5)).count(), 3);
    catalog.remove_child(Some(TreeId(1)), TreeId(3));
    assert_eq!((catalog.next_removal(), catalog.is_consistent()), (Some(TreeId(1)), true), "C2: it has one child");
    catalog.remove_tree(TreeId(1));
    catalog.insert_tree(point(2, None, None));
    assert_eq!(catalog.charged_to(VolumeId(5)).collect::<Vec<_>>(), [TreeId(3)]);
    assert!(catalog.is_consistent(), "C4");
}

/// A removal that a crash interrupted continues before another begins.
#[test]
fn what_was_begun_is_removed_first() {
    let mut catalog = Catalog::new(9, 9, 9, GroupAttributes::default(), Arc::new(PointEpochs::new(true)));
    for id in [1, 2, 3] {
        catalog.insert_tree(point(id, None, None));
    }
    assert_eq!((catalog.next_removal(), catalog.current_removal()), (Some(TreeId(1)), None));
    catalog.insert_tree(TreeMeta { kind: TreeKind::Dying, cursor: 7, ..point(2, None, None) });
    assert_eq!((catalog.next_removal(), catalog.current_removal()), (Some(TreeId(2)), Some(TreeId(2))), "C3");
}

#[test]
fn a_removal_that_is_not_gone_on_with_is_found() {
    must_be_found("newest_removed_first", what_was_begun_is_removed_first);
}

#[test]
fn a_catalog_that_is_not_kept_is_found() {
    for bug in ["last_child_not_recorded", "charge_not_dropped"] {
        must_be_found(bug, cached_values_follow_the_trees);
    }
}
