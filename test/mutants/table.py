"""Small faults all over the packages, each with the quickest test that finds it; see `__main__`."""

from typing import NamedTuple


class Mutant(NamedTuple):
    """A fault.

    Attributes:
        name: tells it from all others.
        file: where it is put, from the root.
        old: text that the file has exactly once.
        new: what takes its place.
        test: the pytest node that must fail then.
        why: what is true without the fault.
    """

    name: str
    file: str
    old: str
    new: str
    test: str
    why: str


MUTANTS = (
    Mutant(
        name="link_is_replaced",
        file="common/files.py",
        old="target = pathlib.Path(os.path.realpath(path))",
        new="target = pathlib.Path(path)",
        test="test/common/test_files.py::test_links_stay_links_and_modes_stay_modes",
        why="writing through a symbolic link must leave the link",
    ),
    Mutant(
        name="small_zip_has_no_allowance",
        file="common/reading.py",
        old="limit = max(_SMALL, _MOST_TIMES * size)",
        new="limit = _MOST_TIMES * size",
        test="test/common/test_arrays.py::test_much_compression_is_allowed_where_it_is_honest",
        why="small honest archives of zeros unpack to more than 50 times their size",
    ),
    Mutant(
        name="second_signal_wins",
        file="common/signals.py",
        old="wish.received = wish.received or signal.Signals(number)",
        new="wish.received = signal.Signals(number)",
        test="test/common/test_signals.py::test_first_signal_is_noted_and_handlers_come_back",
        why="the exit code is that of the first signal",
    ),
    Mutant(
        name="private_use_is_a_surrogate",
        file="common/arrays.py",
        old="(codes < 0xE000)",
        new="(codes <= 0xE000)",
        test="test/common/test_arrays.py::test_characters_beside_those_that_are_none_are_text",
        why="U+E000 is a character",
    ),
    Mutant(
        name="peak_in_kilobytes",
        file="common/memory.py",
        old=('unit = 1 if sys.platform == "darwin" else 1024\n    return resource'),
        new=('unit = 1 if sys.platform == "darwin" else 1000\n    return resource'),
        test="test/common/test_memory.py::test_peak_is_told_in_bytes",
        why="Linux tells the peak in units of 1,024 bytes",
    ),
    Mutant(
        name="held_out_one_more",
        file="datasets/examples.py",
        old="rank < per_class",
        new="rank <= per_class",
        test="test/datasets/test_examples.py::test_hold_out_takes_as_many_of_each_class",
        why="exactly so many examples per class are held out",
    ),
    Mutant(
        name="augmentation_ignores_seed",
        file="datasets/examples.py",
        old="self.augment(images, _seeds(seed, step))",
        new="self.augment(images, _seeds(0, step))",
        test="test/datasets/test_examples.py::test_training_alone_is_augmented_by_seed_and_step",
        why="--seed decides the augmentation, too",
    ),
    Mutant(
        name="every_pass_alike",
        file="datasets/examples.py",
        old="tf.stack([first, passes, stream], axis=1)",
        new="tf.stack([first, 0 * passes, stream], axis=1)",
        test="test/datasets/test_examples.py::test_every_example_comes_once_per_pass",
        why="each pass over the data has an order of its own",
    ),
    Mutant(
        name="test_images_are_augmented",
        file="datasets/examples.py",
        old=("            left = count - (block - first) * size\n"),
        new=(
            "            if self.augment is not None:\n"
            "                images = self.augment(images, _seeds(seed, block))\n"
            "            left = count - (block - first) * size\n"
        ),
        test="test/datasets/test_examples.py::test_training_alone_is_augmented_by_seed_and_step",
        why="what is measured are the images as they are",
    ),
    Mutant(
        name="never_shifted_furthest",
        file="datasets/shift_flip.py",
        old="0, 2 * largest + 1, tf.int32",
        new="0, 2 * largest, tf.int32",
        test="test/datasets/test_cifar100.py::test_without_shifts_images_are_mirrored_only",
        why="shifts go up to `largest` in both directions",
    ),
    Mutant(
        name="probes_are_distractors",
        file="datasets/evaluation_sets.py",
        old="test.select(np.setdiff1d(np.arange(test.num_classes), chosen))",
        new="test.select(np.arange(test.num_classes))",
        test=(
            "test/datasets/test_evaluation_sets.py::test_probes_and_distractors_share_no_"
            "class_with_anything"
        ),
        why="no distractor is of a probe's class",
    ),
    Mutant(
        name="pairs_of_two_are_of_one",
        file="datasets/evaluation_sets.py",
        old="(labels[:, 0] + 1 + labels[:, 1] % (test.num_classes - 1))",
        new="(labels[:, 0] + labels[:, 1] % (test.num_classes - 1))",
        test="test/datasets/test_evaluation_sets.py::test_pairs_are_what_they_say[False]",
        why="a pair of two classes is of two",
    ),
    Mutant(
        name="training_letters_are_all",
        file="datasets/words.py",
        old='letters = dict(zip((*LETTERS, "train"), groups, strict=True))',
        new='letters = {**dict(zip((*LETTERS, "train"), groups, strict=True)), "train": known}',
        test="test/datasets/test_words.py::test_no_letter_is_in_two_parts",
        why="words to train on have no letter of those to test on",
    ),
    Mutant(
        name="gif_frames_are_free",
        file="datasets/image_headers.py",
        old="max(total, tallest * widest)",
        new="tallest * widest",
        test="test/datasets/test_image_headers.py::test_all_frames_of_a_gif_count",
        why="the decoder keeps every frame of a GIF",
    ),
    Mutant(
        name="shards_are_always_mirrored",
        file="datasets/catalogue.py",
        old="dataclasses.replace(tfrecords.open_shards(data_dir), mirror=options.mirror)",
        new="tfrecords.open_shards(data_dir)",
        test="test/datasets/test_catalogue.py::test_mirroring_can_be_turned_off",
        why="--nomirror counts for shards",
    ),
    Mutant(
        name="another_decay_resumes",
        file="flags/train_config.py",
        old='name not in ("data_dir", "on_error")',
        new='name not in ("data_dir", "on_error", "weight_decay")',
        test=(
            "test/flags/test_config.py::test_every_flag_but_where_the_data_are_belongs_to"
            "_the_experiment"
        ),
        why="a run of another weight decay is another experiment",
    ),
    Mutant(
        name="dataset_options_are_lost",
        file="flags/train_config.py",
        old='options = fill(kind.options, content.get("data", {}))',
        new="options = kind.options()",
        test="test/flags/test_config.py::test_config_survives_its_record",
        why="a run keeps the options of its data set",
    ),
    Mutant(
        name="warmup_is_a_step_ahead",
        file="losses/schedules.py",
        old="fraction = tf.cast(step, tf.float32) / self.steps",
        new="fraction = (tf.cast(step, tf.float32) + 1.0) / self.steps",
        test="test/losses/test_schedules.py::test_tensor_steps_also_in_a_graph",
        why="lambda(0) is 0, in the graph too",
    ),
    Mutant(
        name="stage_ends_late",
        file="losses/schedules.py",
        old="[..., tf.newaxis] >= tf.constant(self.ends, tf.int64)",
        new="[..., tf.newaxis] > tf.constant(self.ends, tf.int64)",
        test="test/losses/test_schedules.py::test_path_raises_the_weight_from_stage_to_stage",
        why="the next weight counts from the end of a stage on",
    ),
    Mutant(
        name="controller_learns_in_warmup",
        file="losses/schedules.py",
        old="log_weight += self.RATE * warmup * error",
        new="log_weight += self.RATE * error",
        test=(
            "test/losses/test_target_flops.py::test_weight_follows_the_formulas[0.5-Flops"
            "Regularization]"
        ),
        why="the integral grows as the warm-up does",
    ),
    Mutant(
        name="df_weights_at_once",
        file="losses/regularizers.py",
        old="% self.REFRESH, self.REFRESH - 1)",
        new="% self.REFRESH, 0)",
        test=(
            "test/losses/test_regularizers.py::test_dimensions_weigh_alike_until_their_we"
            "ights_are_renewed"
        ),
        why="the first 100 steps have weights of 1",
    ),
    Mutant(
        name="equal_negative_is_semi_hard",
        file="losses/triplet.py",
        old='side="right"',
        new='side="left"',
        test="test/losses/test_triplet.py::test_a_negative_as_far_as_the_positive_is_not_further",
        why="a semi-hard negative is further away than the positive, not as far",
    ),
    Mutant(
        name="unbiased_by_examples",
        file="losses/sparsity_metrics.py",
        old="/ (examples - 1.0)",
        new="/ examples",
        test=(
            "test/losses/test_sparsity_metrics.py::test_figures_of_the_whole_epoch_whatev"
            "er_the_batch[1]"
        ),
        why="the unbiased estimate divides by n - 1",
    ),
    Mutant(
        name="short_vectors_are_zero",
        file="models/head.py",
        old="alive = square > SMALLEST_NORM**2",
        new="alive = square > SMALLEST_NORM",
        test="test/models/test_head.py::test_l2_normalize_gradient[1e-08]",
        why="vectors longer than 1e-12 have a direction",
    ),
    Mutant(
        name="annealing_ends_early",
        file="models/head.py",
        old="self.anneal_steps - ops.convert_to_tensor(self.step), 0)",
        new="self.anneal_steps - 1 - ops.convert_to_tensor(self.step), 0)",
        test="test/models/test_head.py::test_keep_largest_anneals_in_training_alone",
        why="step 0 keeps four times k",
    ),
    Mutant(
        name="slow_moving_averages",
        file="models/blocks.py",
        old="BATCH_NORM_MOMENTUM = 0.9",
        new="BATCH_NORM_MOMENTUM = 0.99",
        test="test/models/test_encoder.py::test_overfits_a_small_batch[convnet-relu]",
        why="a few hundred steps must be enough for inference",
    ),
    Mutant(
        name="no_residual",
        file="models/mobilefacenet.py",
        old="return keras.layers.Add()([x, y]) if x.shape == y.shape else y",
        new="return y",
        test="test/models/test_architectures.py::test_mobilefacenet",
        why="bottlenecks of one shape add their input",
    ),
    Mutant(
        name="best_result_is_dropped",
        file="retrieval/metrics.py",
        old="keep[keep.all(axis=1), -1] = False",
        new="keep[keep.all(axis=1), 0] = False",
        test="test/retrieval/test_metrics.py::test_drop_self_removes_the_query_or_else_the_last",
        why="without the row itself the last result goes",
    ),
    Mutant(
        name="ties_rank_higher",
        file="retrieval/megaface.py",
        old='row_scores[is_mate], side="right")',
        new='row_scores[is_mate], side="left")',
        test="test/retrieval/test_megaface_recall.py::test_ranks_with_ties_against_brute_force",
        why="a distractor of the mate's score does not count",
    ),
    Mutant(
        name="shortlist_one_longer",
        file="retrieval/megaface.py",
        old="(ahead < longest)",
        new="(ahead <= longest)",
        test="test/retrieval/test_megaface_recall.py::test_ranks_with_ties_against_brute_force",
        why="a mate takes a place on the shortlist",
    ),
    Mutant(
        name="threshold_from_its_own_fold",
        file="retrieval/pair_verification.py",
        old="best_threshold(scores[others], same[others])",
        new="best_threshold(scores, same)",
        test="test/retrieval/test_pair_verification.py::test_folds_against_brute_force",
        why="a fold's threshold comes from the others",
    ),
    Mutant(
        name="directions_without_mean",
        file="retrieval/pca.py",
        old="(x[start : start + _BLOCK] - mean)",
        new="x[start : start + _BLOCK]",
        test="test/retrieval/test_pca.py::test_against_singular_vectors",
        why="principal directions are those of the covariance",
    ),
    Mutant(
        name="recall_must_be_exceeded",
        file="retrieval/tuning.py",
        old="share_found(found, right) >= recall",
        new="share_found(found, right) > recall",
        test="test/retrieval/test_tuning.py::test_tune_returns_what_reaches_the_recall",
        why="an effort that reaches the recall is enough",
    ),
    Mutant(
        name="guess_drops_ties",
        file="retrieval/best_rows.h",
        old="[this](Key key) { return key_score(key) < tau_; }",
        new="[this](Key key) { return key_score(key) <= tau_; }",
        test="test/retrieval/test_index.py::test_ties_with_a_guessed_threshold_go_to_the_lower_id",
        why="rows that tie with a guess may have lower ids",
    ),
    Mutant(
        name="lower_bound_is_upper",
        file="retrieval/block_builder.h",
        old="ordered_to_bf16(uint16_t((bits >> 16) - 1))",
        new="ordered_to_bf16(uint16_t(bits >> 16))",
        test=(
            "test/retrieval/test_cells.py::test_every_way_gives_the_results_of_algorithm_"
            "1[300-0.1-True-512-13-8]"
        ),
        why="negative weights need bounds from below",
    ),
    Mutant(
        name="products_round_down",
        file="retrieval/kernels.inc",
        old="const float product = weights[t] * levels[level] + 1.0f;",
        new="const float product = weights[t] * levels[level];",
        test="test/retrieval/test_cells.py::test_bounds_that_are_exact_are_rounded_up",
        why="bounds of cells are rounded up",
    ),
    Mutant(
        name="list_ends_are_forgotten",
        file="retrieval/plan.h",
        old="return float(least - dropped - slack);",
        new="return float(least - slack);",
        test="test/retrieval/test_index.py::test_rows_are_found_whose_small_values_were_left_out",
        why="what is left out of lists lowers accumulators",
    ),
    Mutant(
        name="filter_shows_removed_rows",
        file="retrieval/filter.h",
        old=(
            "    for (size_t word = 0; word < state.removed.size(); ++word) hidden[word]"
            " |= state.removed[word];\n"
        ),
        new="",
        test="test/retrieval/test_index_ids.py::test_no_filter_brings_a_removed_row_back",
        why="no filter brings a removed row back",
    ),
    Mutant(
        name="merge_gives_ids_again",
        file="retrieval/ids.h",
        old="ids.next_ = std::max(next_, next);",
        new="ids.next_ = next_;",
        test=(
            "test/retrieval/test_index_ids.py::test_merge_gives_no_id_again_that_the_othe"
            "r_index_has_given"
        ),
        why="ids that the other index has given out are not given again",
    ),
    Mutant(
        name="removed_rows_cost",
        file="retrieval/sparse_index.h",
        old=(
            "      after->visit(row, [&](uint32_t dim, float) { --after->list_lengths[dim]; });\n"
        ),
        new="",
        test="test/retrieval/test_index.py::test_rows_may_be_added_and_removed",
        why="`flops` counts the rows that are there",
    ),
    Mutant(
        name="negative_weights_are_unseen",
        file="retrieval/query.h",
        old=("      if (weights[i] < 0.0f) nonnegative = false;\n"),
        new="",
        test="test/retrieval/test_index.py::test_thousands_of_random_cases_equal_the_product",
        why="rows may score below 0",
    ),
    Mutant(
        name="cells_at_the_upper_end",
        file="retrieval/kernels.inc",
        old="count += least <= sums[n] && sums[n] <= most;",
        new="count += least <= sums[n] && sums[n] < most;",
        test="test/retrieval/test_cells.py::test_every_way_gives_the_results_of_algorithm_1",
        why="a round takes up where the one before ended, with every instruction set",
    ),
    Mutant(
        name="less_effort_at_threshold_0",
        file="retrieval/batch_search.h",
        old="best.size() >= best.k() || best.threshold() > 0.0f;",
        new="best.size() >= best.k() || best.threshold() >= 0.0f;",
        test="test/retrieval/test_tuning.py::test_places_that_no_bound_fills_are_filled_exactly",
        why="rows that score 0 follow all those that score more, at any effort",
    ),
    Mutant(
        name="labels_seen_while_judged",
        file="sparsify/labels.py",
        old=(
            "            rows[~unseen],\n"
            "            atoms,\n"
            "            nonzeros,\n"
            "            steps,\n"
            "            seed,\n"
            "            labels[~unseen],"
        ),
        new=(
            "            rows,\n"
            "            atoms,\n"
            "            nonzeros,\n"
            "            steps,\n"
            "            seed,\n"
            "            labels,"
        ),
        test=(
            "test/sparsify/test_sparsifier.py::test_labels_are_judged_on_classes_that_wer"
            "e_not_learned"
        ),
        why="whether labels help is measured on classes that were not learned",
    ),
    Mutant(
        name="chance_is_a_gain",
        file="sparsify/labels.py",
        old="gain.mean() > gain.std() / np.sqrt(len(gain))",
        new="gain.mean() > 0",
        test="test/sparsify/test_sparsifier.py::test_labels_help_if_they_find_more_than_by_chance",
        why="labels are used if they help by more than chance",
    ),
    Mutant(
        name="rows_cost_with_themselves",
        file="sparsify/sparsifier.py",
        old="(counts * (counts - 1)).sum() / (rows * (rows - 1))",
        new="(counts * counts).sum() / (rows * rows)",
        test="test/sparsify/test_sparsifier.py::test_flops_is_that_of_pairs_of_different_rows",
        why="the budget is of different rows",
    ),
    Mutant(
        name="ties_all_stay",
        file="sparsify/encoder.py",
        old="ops.logical_or(above, ops.logical_and(tied, first))",
        new="ops.logical_or(above, tied)",
        test="test/sparsify/test_sparsifier.py::test_ties_do_not_exceed_the_number_of_non_zeros",
        why="a code has at most k non-zeros, ties or not",
    ),
    Mutant(
        name="resumed_data_begin_anew",
        file="experiments/training/loop.py",
        old="draw(start_step=start),",
        new="draw(),",
        test=(
            "test/golden/test_golden.py::test_runs_that_were_stopped_go_on_to_where_they_"
            "would_have_come"
        ),
        why="a resumed run goes on with the data",
    ),
    Mutant(
        name="resumed_run_starts_warm_again",
        file="experiments/training/loop.py",
        old="if start == 0 and config.model.warm_start is not None:",
        new="if config.model.warm_start is not None:",
        test=(
            "test/experiments/training/test_warm_start.py::test_a_resumed_run_does_not_st"
            "art_there_again"
        ),
        why="--warm_start gives the first weights alone",
    ),
    Mutant(
        name="seconds_before_a_stop_are_lost",
        file="experiments/training/recorder.py",
        old=("            self._clock -= self._interval.seconds\n"),
        new="",
        test=(
            "test/golden/test_golden.py::test_runs_that_were_stopped_go_on_to_where_they_"
            "would_have_come"
        ),
        why="the record has the time of all steps",
    ),
    Mutant(
        name="weights_ignore_seed",
        file="experiments/training/devices.py",
        old="keras.utils.set_random_seed(seed)",
        new="keras.utils.set_random_seed(0)",
        test="test/experiments/training/test_devices.py::test_the_seed_decides_the_first_weights",
        why="--seed decides the first weights",
    ),
    Mutant(
        name="seconds_for_milliseconds",
        file="experiments/methods/leave_one_out.py",
        old="1000 * seconds / count",
        new="seconds / count",
        test=(
            "test/experiments/methods/test_leave_one_out.py::test_milliseconds_are_of_"
            "a_thousand_to_the_second"
        ),
        why="the unit is in the name",
    ),
    Mutant(
        name="query_finds_itself",
        file="experiments/evaluation/cifar100.py",
        old="extra = 1 if database is test else 0",
        new="extra = 0",
        test="test/experiments/evaluation/test_cifar100.py::test_against_brute_force",
        why="a test image does not count as its own neighbour",
    ),
    Mutant(
        name="one_degree_of_freedom_more",
        file="experiments/reporting/intervals.py",
        old="scipy.stats.t.ppf(_TAILS, seeds - 1)",
        new="scipy.stats.t.ppf(_TAILS, seeds)",
        test=(
            "test/experiments/reporting/test_intervals.py::test_three_seeds_have_two_degr"
            "ees_of_freedom"
        ),
        why="three seeds have two degrees of freedom",
    ),
    Mutant(
        name="speedup_upside_down",
        file="experiments/reporting/search_rules.py",
        old="ratio = time_ratio(dense, group)",
        new="ratio = time_ratio(group, dense)",
        test="test/experiments/reporting/test_claims.py::test_speedup",
        why="how many times faster, not slower",
    ),
    Mutant(
        name="needed_steps_do_not_count",
        file="experiments/orchestration/steps.py",
        old=("            or any(name in found for name in step.needs)\n"),
        new="",
        test=(
            "test/experiments/orchestration/test_steps.py::test_what_needs_a_changed_step"
            "_is_run_again_and_nothing_else"
        ),
        why="a step is run again after one that it needs",
    ),
    Mutant(
        name="thresholds_are_shared",
        file="experiments/serving/answers.py",
        old="groups.setdefault((query.threshold, query.only), [])",
        new="groups.setdefault(query.only, [])",
        test="test/experiments/serving/test_batching.py::test_a_batch_answers_as_each_query_alone",
        why="each query of a batch has its own threshold",
    ),
    Mutant(
        name="held_out_rows_are_learned",
        file="benchmarks/sparsifiers.py",
        old="return Split(rows[~unseen], labels[~unseen], rows[unseen], labels[unseen])",
        new="return Split(rows, labels, rows[unseen], labels[unseen])",
        test="benchmarks/test_sparsifiers.py::test_held_out_classes_are_not_learned",
        why="nothing learns from the classes that it is measured on",
    ),
    Mutant(
        name="scores_of_a_database_are_believed",
        file="experiments/exporting/transfer.py",
        old="for x in (right, true)), default=0.0)",
        new="for x in (right,)), default=0.0)",
        test=(
            "test/experiments/exporting/test_transfer.py::test_a_row_must_have_the_score_"
            "that_the_database_says"
        ),
        why="each row has the score that the database says",
    ),
    Mutant(
        name="zeros_in_both_alone_count",
        file="experiments/evaluation/formats.py",
        old="np.mean((rows == 0) == (expected == 0))",
        new="np.mean((rows == 0) & (expected == 0))",
        test=(
            "test/experiments/encoders/test_formats.py::test_what_is_exported_is_compared"
            "_and_embed_uses_it"
        ),
        why="values that are zero in neither agree, too",
    ),
)
