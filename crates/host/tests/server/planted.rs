//! Bugs that are put in on purpose: each breaks one rule, and the test that is named with it must fail. Run on request:
//! `cargo test -p rowen-host --test server planted`.

use std::process::{Command, ExitCode};
use std::time::Instant;

/// The argument that asks for it, and the variable that names the bug to the test's processes.
pub const ARGUMENT: &str = "planted";
pub const VARIABLE: &str = "ROWEN_PLANTED";

const BUGS: &[(&str, &str, &str)] = &[
    ("H1", "in_server", "freezing::a_helper_that_has_answered_is_asked_again"),
    ("H2", "keeps_descriptors", "freezing::a_helper_that_has_answered_is_asked_again"),
    ("H3", "waits_for_ever", "freezing::a_helper_that_is_late_leaves_nothing_frozen"),
    ("H4", "never_thaws", "freezing::a_server_that_is_killed_leaves_nothing_frozen"),
    ("H5", "no_marker", "freezing::a_helper_that_is_killed_leaves_nothing_frozen"),
    ("H6", "not_proven", "freezing::what_covers_a_volume_is_not_frozen"),
    ("H8", "looks_at_volumes", "stacks::a_loop_device_over_a_file_on_a_volume_is_not_looked_at"),
    ("H9", "looks_everywhere", "stacks::a_device_that_hangs_keeps_no_server_from_coming_back"),
    ("H9", "joining_unread", "stacks::a_device_that_hangs_keeps_no_server_from_what_joined"),
    ("H9", "renamed_anywhere", "stacks::a_hanging_device_keeps_no_renamed_group_away"),
    ("H10", "asks_the_late", "stacks::a_device_that_hangs_is_refused"),
    ("H10", "asks_no_other", "freezing::a_request_that_no_helper_has_read_is_another_helpers"),
    ("H14", "settings_in_server", "stacks::settings_that_hang_keep_no_server_away"),
    ("H15", "files_of_any_kind", "files::what_is_no_file_holds_up_nobody"),
    ("H15", "files_by_itself", "files::a_filesystem_that_does_not_answer_holds_up_nobody"),
    ("H11", "not_noted", "stacks::two_groups_do_not_take_each_others_volumes_at_once"),
    ("H12", "opens_itself", "stacks::a_device_that_hangs_when_it_is_opened_is_refused"),
    ("H7", "keeps_for_nobody", "volumes::a_device_that_was_made_for_nobody_goes"),
    ("A1", "written_in_place", "copies::they_are_whole_and_bounded"),
    ("A2", "not_archived", "copies::they_are_whole_and_bounded"),
    ("A3", "unbounded_archive", "copies::they_are_whole_and_bounded"),
    ("A4", "archive_waited_for", "copies::nobody_waits_for_them"),
    ("A5", "archived_for_nobody", "copies::a_late_one_replaces_no_newer_one"),
    ("RN1", "rename_unnoted", "groups::a_rename_that_is_killed_is_finished"),
    ("RN2", "rename_unlocked", "groups::nobody_finishes_a_rename_that_goes_on"),
    ("RN3", "new_name_holds", "groups::a_rename_without_a_keeper_is_finished_by_a_command"),
    ("K1", "keeps_half", "life::a_killed_server_comes_back_under_a_mount"),
    (
        "K1",
        "keeper_has_a_part",
        "upgrade::a_keeper_that_is_killed_while_a_server_takes_over_is_followed_by_one_that_has_all",
    ),
    ("K2", "keepers_beside", "life::of_two_keepers_one_stays"),
    ("K3", "no_successor", "life::a_killed_server_is_replaced_unasked"),
    ("K4", "keeper_stays", "life::an_idle_server_ends"),
    ("K5", "counts_as_failed", "life::servers_that_end_when_they_serve_come_back_soon"),
    ("E1", "names_stay", "volumes::a_new_volume_has_its_nodes_at_once"),
    ("E2", "no_look_at_users", "volumes::a_mounted_volume_is_not_removed"),
    ("E3", "file_stays", "volumes::a_new_volume_has_its_nodes_at_once"),
    ("K6", "store_keeps", "life::what_the_service_manager_has_outlives_both"),
    ("BT1", "killed_with_all", "upgrade::processes_of_the_root_filesystem_are_spared_and_stay"),
    ("K7", "rename_unstores", "life::a_renamed_group_has_the_copies_of_its_service"),
    ("RT5", "note_of_the_living", "returns::what_goes_on_after_a_note_refuses_no_disk"),
    ("RT5", "debt_forgotten", "returns::what_goes_on_after_a_note_refuses_no_disk"),
    ("NW1", "witness_unwritten", "witness::an_older_half_is_not_opened"),
    ("NW1", "end_not_noted", "witness::an_older_disk_alone_is_not_opened_after_an_end"),
    ("NW2", "witness_unread", "witness::an_older_half_is_not_opened"),
    ("NW2", "numbers_alone", "witness::an_older_half_is_not_opened"),
    ("NW3", "whole_doubted", "witness::copies_of_one_moment_are_opened_and_the_file_goes_with_the_group"),
    ("NW4", "witness_stays", "witness::copies_of_one_moment_are_opened_and_the_file_goes_with_the_group"),
    ("WD1", "watchdog_sleeps", "life::a_worker_that_is_wedged_is_replaced"),
    ("HS6", "deaths_untold", "history::deaths_are_reported"),
    ("WD3", "alive_anyway", "life::the_service_manager_is_notified_that_workers_work"),
    ("EN1", "waits_for_commands", "life::a_command_that_hangs_keeps_no_server_from_ending"),
    ("LD3", "doubt_ignored", "lost::a_read_that_fails_is_enough"),
    ("EN2", "destroyed_holds_on", "life::disks_of_a_removed_group_are_free_before_its_server_ends"),
    ("EN3", "start_gives_up", "life::the_next_group_of_that_name_starts_when_the_directory_goes"),
    ("CF1", "files_grow_back", "lost::a_file_that_is_cut_is_lost_for_good"),
    ("CF1", "cut_accepted", "lost::a_file_that_is_cut_is_not_accepted"),
    ("NW5", "cut_unwritten", "lost::a_file_that_is_cut_is_lost_for_good"),
    ("RT6", "partial_owes_nothing", "lost::a_user_can_go_on_without_it_under_who_uses_it"),
    ("DT2", "hung_keeps_others", "hung::the_others_go_on_without_it"),
    ("DT2", "hung_is_waited_for", "hung::the_others_go_on_without_it"),
    ("DT3", "needed_untold", "hung::what_is_needed_is_waited_for"),
    ("LD1", "lost_untold", "lost::the_others_go_on_without_it"),
    ("LD2", "any_lost_returns", "lost::an_older_copy_is_not_taken_back"),
    ("RT1", "any_age_returns", "returns::an_older_copy_is_not_taken"),
    ("RT1", "held_unproven", "returns::a_disk_that_never_left_needs_no_proof"),
    ("RT2", "losses_unpaid", "returns::who_may_have_lost_something_is_reported"),
    ("ST3", "waits_to_know", "status::what_hangs_is_named_and_the_rest_shown"),
    ("HS1", "history_waited_for", "history::nobody_waits_for_the_history"),
    ("HS2", "history_unbounded", "history::files_are_bounded"),
    ("HS5", "losses_untold", "history::what_is_not_ours_is_left_alone"),
    ("FU5", "attributes_uncached", "status::losetup_waits_for_no_server"),
    ("ST2", "look_leaves_traces", "status::to_look_changes_nothing"),
    ("HS4", "history_by_links", "history::what_is_not_ours_is_left_alone"),
    ("UP1", "upgrades_untried", "upgrade::a_check_and_a_program_that_cannot_open_change_nothing"),
    ("UP2", "successor_without_copies", "upgrade::whoever_is_killed_in_an_upgrade_the_group_is_served"),
    ("UP3", "unrehearsed", "upgrade::a_program_that_cannot_be_the_keeper_is_not"),
    ("UP4", "hands_over_unready", "upgrade::a_successor_that_hangs_before_it_is_ready_costs_nothing"),
    ("UP5", "no_way_back", "upgrade::a_successor_that_does_not_serve_is_replaced_by_the_old_program"),
    ("UP6", "upgrades_beside", "upgrade::two_upgrades_at_once_are_one"),
    ("UP7", "upgrade_is_death", "upgrade::old_to_new_and_back_under_fio_loses_nothing"),
    ("UP8", "upgrade_patient", "upgrade::a_change_under_way_is_waited_for_for_a_limited_time"),
    ("H13", "counts_places", "usage::a_place_that_a_user_holds_is_no_use"),
    ("H13", "believes_sources", "usage::a_mount_that_names_a_volume_is_no_use"),
];

/// Runs each test with its bug, all or those that the filters name.
pub fn run(filters: &[String]) -> ExitCode {
    let chosen = |bug: &str| filters.is_empty() || filters.iter().any(|filter| bug.contains(filter.as_str()));
    let mut missed = Vec::new();
    for (rule, bug, test) in BUGS.iter().filter(|(_, bug, _)| chosen(bug)) {
        let begun = Instant::now();
        let output = Command::new("/proc/self/exe").arg(test).env(VARIABLE, bug).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let is_found = !output.status.success() && text.contains("0 passed; 1 failed");
        let word = if is_found { "found" } else { "MISSED" };
        println!("{rule} {bug} ... {word} by {test} ({} ms)", begun.elapsed().as_millis());
        if !is_found {
            println!("{text}{}", String::from_utf8_lossy(&output.stderr));
            missed.push(*bug);
        }
    }
    println!("\n{} missed {missed:?}", missed.len());
    if missed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
