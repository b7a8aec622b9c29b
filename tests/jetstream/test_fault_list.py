"""The faults that the store over JetStream has to survive, and the tests that inject them.

Not tried, since it needs a separate machine or disk: a real power failure (a reset of the machine, or a disk that acknowledges syncs
that it has not done). SIGKILL ends a process and leaves what it wrote to the operating system.
"""

from __future__ import annotations

from pathlib import Path

import pytest

pytestmark = pytest.mark.once

TESTS = Path(__file__).parents[1]
DEATHS, CUTS, ENGINE, FROZEN, KILLS, PROMISES = (
    f"jetstream/test_{name}.py" for name in ("deaths", "cut_off", "engine_faults", "frozen_nodes", "kills", "promises")
)
STREAMS, LEASE = "stores/test_stream_faults.py", "broker/stores/jetstream/test_lease.py"

FAULTS = {
    "an owner is killed before, while and after it takes over, reads, appends to, shortens and hands over a log": [
        (DEATHS, "test_an_owner_that_dies_at_any_step_loses_nothing"),
        (DEATHS, "test_an_owner_of_a_compacted_topic_that_dies_at_any_step_loses_nothing"),
        (KILLS, "test_killed_nodes_are_replaced_after_their_lease"),
    ],
    "an owner is frozen for longer than its lease, with its self-fence and without": [
        (KILLS, "test_a_node_frozen_for_longer_than_its_lease_is_replaced_and_comes_back_as_another"),
        (PROMISES, "test_replies_during_failures_of_nodes_show_no_anomaly"),
        (PROMISES, "test_fenced_appends_alone_prevent_anomalies_when_nodes_do_not_fence_themselves"),
        (STREAMS, "test_the_log_alone_refuses_a_node_that_does_not_notice_the_end_of_its_lease"),
    ],
    "a topic is deleted and made anew while a node is frozen": [
        (FROZEN, "test_commits_for_a_topic_made_anew_while_the_coordinator_is_frozen"),
        (FROZEN, "test_a_topic_is_made_anew_only_when_a_frozen_node_knows_that_it_was_deleted"),
    ],
    "a node is frozen at any step while it opens a log, and another node takes the log over": [
        (STREAMS, "test_a_log_that_another_node_may_have_claimed_while_it_was_opened_is_not_served"),
        (STREAMS, "test_a_claim_from_the_time_between_two_leases_does_not_count"),
        (STREAMS, "test_an_owner_that_has_not_read_the_claim_of_another_node_finds_it_in_the_stream"),
        (LEASE, "test_a_heartbeat_after_the_end_of_the_lease_begins_another_lease"),
    ],
    "the loop of an owner stands still for longer than its lease, with a reply already made": [
        (LEASE, "test_a_reply_from_before_a_stall_longer_than_the_lease_is_never_sent"),
        (LEASE, "test_an_acknowledgement_from_before_a_freeze_renews_no_lease"),
    ],
    "an owner is cut off from the engine in both ways, in one, and for its heartbeats only": [
        (CUTS, "test_a_node_that_is_cut_off_in_any_way_ends_before_the_next_owner_begins"),
        (PROMISES, "test_replies_during_failures_of_nodes_show_no_anomaly"),
        (STREAMS, "test_a_node_that_comes_back_finds_its_log_with_another_owner"),
    ],
    "an owner is cut off from clients and other nodes, and not from the engine": [
        (PROMISES, "test_a_node_that_only_jetstream_reaches_keeps_its_logs"),
    ],
    "acknowledgements are late or lost, and appends are sent twice": [
        (CUTS, "test_acknowledgements_that_come_late_are_no_failure"),
        (CUTS, "test_acknowledgements_that_get_lost_again_and_again_are_no_loss"),
        (STREAMS, "test_appends_are_stored_once_though_messages_get_lost"),
    ],
    "several nodes claim a log at once, also from an owner that writes at full rate; two processes have one node id": [
        (STREAMS, "test_each_epoch_goes_to_one_of_many_simultaneous_claimants"),
        (STREAMS, "test_a_pipeline_at_full_rate_is_cut_by_a_claim"),
        (CUTS, "test_three_claimants_and_a_returning_owner_never_share_an_epoch"),
        (STREAMS, "test_the_older_of_two_processes_with_one_id_ends"),
        (STREAMS, "test_a_second_process_with_an_id_waits_for_the_lease_of_the_first_one"),
    ],
    "servers of the engine are killed and frozen: the leader of a log, of the nodes' stream, of the engine, two, and all": [
        (ENGINE, "test_a_leader_of_the_engine_is_replaced"),
        (ENGINE, "test_without_a_majority_nothing_is_acknowledged_and_with_it_everything_goes_on"),
        (ENGINE, "test_all_servers_killed_at_once_have_what_they_acknowledged"),
        (KILLS, "test_servers_of_the_engine_ended_one_after_another_stop_no_node"),
    ],
    "servers of the engine, and nodes, are restarted one after another under load": [
        (ENGINE, "test_servers_restarted_one_after_the_other_under_load"),
        (KILLS, "test_servers_of_the_engine_ended_one_after_another_stop_no_node"),
        (KILLS, "test_nodes_restarted_in_order_hand_over_at_once"),
    ],
    "a server loses its disk": [(ENGINE, "test_a_server_with_an_emptied_disk_gets_everything_again")],
    "disks of the engine are full, or its limits are reached": [
        (ENGINE, "test_a_server_whose_disk_is_full_is_replaced"),
        (ENGINE, "test_on_full_disks_nothing_is_acknowledged_and_with_space_everything_goes_on"),
        (PROMISES, "test_clients_get_only_errors_that_they_retry_while_the_disk_of_the_engine_is_full"),
        (ENGINE, "test_a_full_engine_refuses_and_goes_on_when_there_is_room"),
        (ENGINE, "test_a_full_stream_refuses_and_keeps_what_it_has"),
        (ENGINE, "test_a_batch_larger_than_max_payload_fails_alone"),
    ],
    "a stream is deleted and made anew, loses its end, or has a hole": [
        (STREAMS, "test_a_stream_that_was_made_anew_is_not_served"),
        (STREAMS, "test_a_log_that_lost_its_end_is_not_served"),
        (ENGINE, "test_a_log_with_a_hole_is_refused"),
    ],
    "bits of a server's file are flipped, a file is truncated, or a disk goes back to an older state": [
        (ENGINE, "test_a_damaged_file_of_one_server_is_never_served_as_a_hole"),
        (ENGINE, "test_a_damaged_file_of_the_only_server_is_never_served_as_a_hole"),
        (ENGINE, "test_a_server_whose_disk_went_back_to_an_older_state_loses_nothing"),
    ],
    "wall clocks jump by hours": [(CUTS, "test_wall_clocks_that_jump_by_hours_change_nothing")],
    "all replies to clients fit together: commits, fetches, generations, epochs": [
        (PROMISES, "test_replies_during_failures_of_nodes_show_no_anomaly"),
        ("jetstream/test_history.py", "test_each_anomaly_is_found"),
    ],
}


def test_the_tests_of_all_faults_exist() -> None:
    listed = [test for tests in FAULTS.values() for test in tests]
    assert [(file, name) for file, name in listed if f"def {name}(" not in (TESTS / file).read_text()] == []
