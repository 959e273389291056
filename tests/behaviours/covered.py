"""Where each behaviour is tested on which projects of this kind were reported wrong, or why it has no feature yet."""

# From the identity of a behaviour to tests, as `file::function` below `tests/`; or to what must be there first.
COVERED: dict[str, list[str] | str] = {
    "ACC-02": [
        "training/test_task.py::test_each_update_has_the_schedules_next_value",
        "training/test_task.py::test_micro_batches_of_ragged_counts_train_as_one_batch_does",
        "training/test_schedules.py::test_a_schedule_is_a_function_of_the_step_alone",
        "training/test_schedules.py::test_cosine_warms_up_to_the_peak_and_ends_at_the_floor_for_good",
        "training/test_parallel.py::test_two_processes_train_as_one_does",
    ],
    "ATT-02": [
        "behaviours/test_attention.py::test_a_row_without_a_token_is_finite_and_harms_no_other",
        "behaviours/test_attention.py::test_a_source_without_a_token_is_finite_and_harms_no_other",
        "blocks/kernels/test_kernels.py::test_a_query_that_sees_nothing_gives_zero_with_finite_gradients",
        "test_promises.py::test_promise_holds",
    ],
    "ATT-03": [
        "behaviours/test_attention.py::test_evaluation_draws_no_random_number",
        "blocks/mixers/test_attention.py::test_dropout_acts_in_training_alone",
        "generation/test_decode.py::test_mode_and_random_state_are_left_as_they_were",
    ],
    "ATT-04": ["behaviours/test_attention.py::test_a_least_bias_and_a_mask_together_do_not_overflow"],
    "ATT-05": [
        "behaviours/test_attention.py::test_another_document_moves_a_document_by_exactly_nothing",
        "training/test_objectives.py::test_causal_lm_keeps_packed_documents_apart",
        "data/test_text.py::test_isolated_documents_are_told_apart_and_have_no_target_across_the_border",
        "test_promises.py::test_promise_holds",
    ],
    "ATT-06": [
        "behaviours/test_attention.py::test_one_kernel_takes_awkward_lengths_one_after_another",
        "blocks/kernels/test_kernels.py::test_awkward_lengths_agree_with_float64",
        "blocks/kernels/test_kernels.py::test_every_kernel_equals_the_loop_forward_and_backward",
        "blocks/kernels/test_kernels.py::test_flash_refuses_what_it_cannot_do_and_says_who_can",
        "blocks/kernels/test_kernels.py::test_flash_that_is_called_for_what_it_cannot_do_falls_back_on_nothing",
    ],
    "ATT-07": [
        "behaviours/test_attention.py::test_grouped_heads_are_heads_whose_keys_are_copied_group_by_group",
        "blocks/kernels/test_kernels.py::test_query_head_h_uses_key_head_h_over_group",
        "blocks/mixers/test_attention.py::test_heads_that_do_not_fit_are_refused",
    ],
    "ATT-08": [
        "behaviours/test_attention.py::test_true_means_visible_and_pads_and_causality_hold_together",
        "behaviours/test_attention.py::test_a_mask_of_another_size_is_refused",
        "behaviours/test_attention.py::test_a_mask_of_another_type_is_refused",
        "behaviours/test_attention.py::test_a_mask_of_a_memory_of_another_size_is_refused",
    ],
    "CFG-03": [
        "behaviours/test_runs.py::test_a_value_is_what_it_looks_like_in_a_file_and_on_the_command_line_or_refused",
        "behaviours/test_runs.py::test_a_seed_is_a_whole_number",
        "test_config.py::test_numbers_read_the_same_in_a_file_and_on_the_command_line",
    ],
    "CKPT-02": [
        "behaviours/test_runs.py::test_a_checkpoint_holds_a_config_as_plain_resolved_values_and_resumes",
        "training/test_resume.py::test_a_checkpoint_loads_safely_in_a_fresh_process_as_plain_values_and_plain_names",
    ],
    "CKPT-04": [
        "behaviours/test_training.py::test_weights_load_whatever_was_wrapped_around_the_model_then_or_now",
        "behaviours/test_training.py::test_a_name_that_is_missing_from_a_checkpoint_is_an_error",
        "training/test_task.py::test_compilation_changes_no_name",
        "training/test_parallel.py::test_two_processes_train_as_one_does",
        "generation/test_text_of_runs.py::test_a_checkpoint_of_another_model",
    ],
    "DIST-03": [
        "behaviours/test_training.py::test_dropout_is_another_for_every_rank_micro_batch_and_seed_and_none_else",
        "behaviours/test_training.py::test_a_runs_seed_reaches_its_first_weights_its_order_and_its_dropout",
        "data/test_loader.py::test_workers_change_nothing",
        "data/test_loader.py::test_ranks_share_a_training_batch",
        "data/test_order.py::test_seeds_and_epochs_give_orders_of_their_own",
        "blocks/initialisers/test_initialisers.py::"
        "test_every_layer_starts_differently_and_the_same_seed_starts_the_same",
    ],
    "DIST-04": [  # refused; the norm of whole parameters on two ranks is in the second
        "behaviours/test_runs.py::test_a_strategy_that_shards_is_refused_before_its_norm_could_be_wrong",
        "training/test_parallel.py::test_two_processes_train_as_one_does",
    ],
    "DIST-05": "no tensor parallelism yet",
    "GEN-01": [
        "generation/test_decode.py::test_a_row_is_decoded_as_if_it_were_alone",
        "generation/test_decode.py::test_steps_equal_one_pass_over_each_row_alone",
        "generation/test_decode.py::test_what_the_pads_hold_does_not_matter",
    ],
    "GEN-02": [
        "behaviours/test_attention.py::test_every_chunking_of_a_sequence_gives_the_same_logits",
        "generation/test_decode.py::test_steps_equal_one_pass_over_each_row_alone",
        "blocks/mixers/test_attention.py::test_cached_chunks_equal_the_whole",
        "blocks/mixers/test_lstm.py::test_cached_chunks_equal_the_whole",
        "test_promises.py::test_promise_holds",
    ],
    "GEN-05": [
        "generation/test_beam.py::test_a_prompt_is_searched_as_if_it_were_alone",
    ],
    "GEN-07": [
        "generation/test_decode.py::test_nothing_is_left_over_between_calls",
        "generation/test_decode.py::test_learned_positions_are_used_to_the_last_and_not_beyond",
        "generation/test_decode.py::test_learned_positions_of_both_sides_are_known_before_the_first_step",
        "blocks/test_cache.py::test_a_full_slot_refuses_one_token_more",
        "blocks/test_cache.py::test_a_full_cache_refuses_one_token_more",
        "generation/test_decode.py::test_other_positions_go_on_beyond_max_length",
    ],
    "GEN-08": [
        "generation/test_sampling.py::test_the_token_that_crosses_top_p_is_kept",
        "generation/test_sampling.py::test_degenerate_settings_are_greedy",
        "generation/test_sampling.py::test_top_p_counts_what_top_k_left",
        "generation/test_sampling.py::test_impossible_tokens_are_never_drawn",
        "generation/test_sampling.py::test_draws_follow_the_distribution",
        "generation/test_sampling.py::test_the_token_that_reaches_top_p_is_the_last",
        "generation/test_sampling.py::test_top_k_keeps_k",
    ],
    "GEN-09": [
        "generation/test_decode.py::test_a_row_ends_at_its_own_eos_and_the_limit_counts_new_tokens",
        "generation/test_decode.py::test_min_new_counts_tokens_before_eos",
        "generation/test_decode.py::test_decoding_stops_when_all_rows_are_done",
        "generation/test_beam.py::test_min_new_holds_for_beams",
        "generation/test_beam.py::test_a_search_ends_when_nothing_live_can_win",
    ],
    "GEN-10": [
        "generation/test_beam.py::test_a_beam_that_holds_every_prefix_is_exhaustive",
        "generation/test_beam.py::test_a_beam_of_one_is_greedy",
        "generation/test_beam.py::test_results_are_sorted_different_and_score_as_teacher_forcing_does",
        "generation/test_beam.py::test_a_beam_wider_than_the_vocabulary_has_no_copies",
        "generation/test_beam.py::test_impossible_sequences_are_no_results",
    ],
    "GEN-11": [
        "generation/test_decode.py::test_a_row_is_decoded_as_if_it_were_alone",
        "generation/test_decode.py::test_equal_prompts_get_different_samples_and_another_seed_others",
        "behaviours/test_training.py::test_sampling_while_a_run_validates_leaves_the_training_as_it_is",
        "generation/test_decode.py::test_mode_and_random_state_are_left_as_they_were",
    ],
    "INIT-01": [
        "models/test_assembly.py::test_layers_start_different",
        "models/test_assembly.py::test_equal_configs_give_equal_weights_and_a_swap_leaves_the_others_alone",
        "blocks/initialisers/test_initialisers.py::"
        "test_the_first_loss_is_that_of_a_guess_plus_half_the_variance_of_the_logits",
        "science/test_initial_loss.py::test_the_initial_loss_is_ln_v_plus_half_the_logits_variance",
    ],
    "LOSS-02": [
        "behaviours/test_training.py::test_a_micro_batch_without_a_target_leaves_the_others_as_they_are",
        "behaviours/test_training.py::test_weights_whose_loss_is_no_number_are_never_the_best",
        "training/test_task.py::test_a_step_without_a_target_has_no_gradient_and_no_nan",
        "training/test_parallel.py::test_two_processes_train_as_one_does",
        "data/test_loader.py::test_a_rank_without_a_row_takes_part_without_a_target",
        "blocks/heads/test_linear_head.py::test_no_target_at_all_gives_zero_and_zero_gradients_even_of_bad_states",
    ],
    "LOSS-03": [
        "blocks/heads/test_linear_head.py::"
        "test_smoothing_spreads_over_the_whole_vocabulary_and_never_touches_ignored_targets",
        "blocks/heads/test_linear_head.py::test_without_smoothing_it_is_plain_cross_entropy_bit_for_bit",
        "training/test_task.py::test_the_validation_loss_is_that_of_all_targets_whatever_the_batches",
    ],
    "MET-03": "no BLEU yet",
    "MET-04": "no BLEU yet",
    "MLM-01": "no masked language modelling yet",
    "NORM-01": [
        "blocks/norms/test_norms.py::test_three_hundred_in_half_precision_is_one_and_not_infinity",
        "blocks/norms/test_norms.py::test_zeros_stay_zeros_with_finite_gradients",
        "blocks/norms/test_norms.py::test_small_numbers_in_half_precision_keep_a_hundredth",
        "blocks/norms/test_norms.py::test_the_dtype_is_the_inputs_even_with_wide_weights_and_under_autocast",
    ],
    "OPT-01": [
        "behaviours/test_training.py::"
        "test_every_trainable_parameter_is_in_one_group_and_tables_and_vectors_do_not_decay",
        "training/test_optimisers.py::test_every_trainable_parameter_is_in_one_group",
        "training/test_optimisers.py::test_one_step_with_no_gradient_shrinks_what_decays_alone",
        "training/test_optimisers.py::test_names_do_not_change_under_compilation",
    ],
    "POS-03": "no ALiBi yet",
    "POS-04": [
        "blocks/positions/test_positions.py::test_rotary_turns_the_pairs_of_its_layout",
        "blocks/positions/test_positions.py::test_the_layouts_are_one_rotation_of_reordered_features",
        "blocks/positions/test_positions.py::test_rotary_scores_depend_on_distance_alone",
        "blocks/positions/test_positions.py::test_an_odd_width_cannot_be_turned",
        "interop/test_parity.py::test_logits_and_gradients_are_the_same",
        "interop/test_export.py::test_an_option_without_counterpart_is_refused_by_name_beside_what_has",
        "models/test_assembly.py::test_a_contradiction_is_one_line_with_its_place",
    ],
    "POS-05": [
        "blocks/positions/test_positions.py::test_a_sequence_longer_than_the_learned_positions_is_named_with_their_number",
        "blocks/positions/test_positions.py::test_pads_do_not_use_up_learned_positions",
        "blocks/positions/test_positions.py::test_sinusoids_have_the_papers_values",
        "blocks/positions/test_positions.py::test_sinusoids_equal_the_formula_at_every_width",
        "blocks/positions/test_positions.py::test_every_row_of_a_batch_gets_its_own_positions",
        "models/test_assembly.py::test_a_contradiction_is_one_line_with_its_place",
    ],
    "SCHED-02": [
        "training/test_schedules.py::test_noam_gives_the_papers_values",
        "training/test_schedules.py::test_noam_without_a_warm_up_starts_at_its_peak",
        "training/test_schedules.py::test_the_first_update_never_has_a_learning_rate_of_0",
        "training/test_schedules.py::test_cosine_without_a_warm_up_starts_at_its_peak",
        "training/test_schedules.py::test_cosine_of_one_step_trains",
        "training/test_task.py::test_each_update_has_the_schedules_next_value",
    ],
    "SCHED-03": [
        "training/test_resume.py::test_a_run_that_is_killed_and_resumed_is_the_run_that_was_not",
        "training/test_resume.py::test_a_run_goes_on_longer_under_new_settings_which_it_says",
        "training/test_resume.py::test_what_a_run_trains_may_not_change",
    ],
    "SWP-01": [
        "behaviours/test_runs.py::test_runs_of_one_process_are_runs_of_their_own_and_a_failed_one_is_closed_as_failed",
    ],
    "SWP-03": [
        "ablation/test_sweep_kills.py::"
        "test_each_run_of_several_processes_is_carried_out_once_by_all_of_them_one_run_after_another",
    ],
    "SWP-04": [
        "ablation/test_sweep.py::test_two_runs_of_four_that_fail_stop_no_other_and_are_named_with_their_last_lines",
        "behaviours/test_runs.py::"
        "test_a_sweep_goes_on_after_each_failure_and_leaves_it_in_the_log_the_summary_and_the_status",
    ],
    "SWP-05": [
        "ablation/test_sweep.py::test_every_run_has_its_own_seed_in_its_config_and_its_arm_in_the_tracker",
        "ablation/test_sweep.py::test_the_order_of_the_runs_changes_none_of_them",
        "ablation/test_plan.py::test_runs_are_arms_times_seeds_each_with_its_own_config_and_folder",
        "ablation/test_plan.py::test_arms_that_resolve_to_the_same_config_are_found",
        "ablation/test_study.py::test_what_is_wrong_with_a_study_is_a_line",
    ],
    "TOK-02": [
        "behaviours/test_training.py::test_a_batch_with_an_empty_text_trains_and_scores",
        "data/test_tokenizer.py::test_text_gives_no_special_id",
        "data/test_tokenizer.py::test_special_ids_are_the_convention_and_decode_to_nothing",
        "data/test_tokenizer.py::test_a_model_with_other_special_ids_is_refused",
    ],
    "TOK-03": [
        "data/test_tokenizer.py::test_decoding_gives_back_what_was_encoded",
        "data/test_tokenizer.py::test_decoding_gives_back_any_text",
    ],
    "TRAIN-01": [
        "behaviours/test_compiled.py::test_a_compiled_layer_that_is_recomputed_drops_what_it_dropped_before",
        "behaviours/test_training.py::test_a_recomputed_layer_drops_what_it_dropped_before_to_the_bit",
        "behaviours/test_training.py::test_without_the_random_state_a_recomputed_layer_would_drop_something_else",
        "models/test_assembly.py::test_checkpointing_changes_neither_loss_nor_gradients_with_dropout_on",
    ],
    "TRAIN-02": ["training/test_task.py::test_an_update_that_overflows_under_16_mixed_is_none"],
    "TRAIN-03": [
        "behaviours/test_training.py::test_layers_are_recomputed_on_frozen_inputs_when_shared_and_under_autocast",
        "behaviours/test_training.py::test_two_processes_that_recompute_shared_layers_train_as_one_that_does_not",
    ],
    "WB-01": [
        "behaviours/test_runs.py::test_a_tracker_keeps_every_metric_of_a_resumed_run",
        "training/test_tracking.py::test_an_offline_run_that_is_resumed_is_whole_in_its_newest_piece",
        "training/test_metrics.py::test_a_resumed_run_drops_what_it_will_write_again",
    ],
    "WB-03": "no sweeps driven by an agent",
}
