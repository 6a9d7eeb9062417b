"""The files that are mutated, and for each the tests that have to notice, quick ones first."""

from collections.abc import Mapping


def below(folder: str, names: str) -> list[str]:
  """Files tests/FOLDER/test_NAME.py."""
  return [f"tests/{folder}/test_{name}.py" for name in names.split()]


def named(file: str, tests: str) -> list[str]:
  """Single tests of a file tests/FILE, for those whose others are slow."""
  return [f"tests/{file}::test_{name}" for name in tests.split()]


OBJECTIVE = named(
  "learning/test_objective.py",
  "sums_are_the_same_however_the_batch_is_divided loss_metrics_and_update_against_numpy"
  " a_metric_of_nothing_is_not_a_number_and_leaves_the_run_alone"
  " mixed_precision_keeps_parameters_and_sums_in_float32",
)
STEP = named(
  "learning/test_train_step.py",
  "what_is_left_of_the_initial_parameters metrics_and_update_against_plain_jax"
  " broken_images_are_counted_over_all_steps moving_average"
  " an_update_that_is_not_finite_is_left_out"
  " the_corrected_average_weighs_the_parameters_after_each_update_alone"
  " an_update_that_is_not_finite_is_left_out an_update_that_was_left_out_has_no_norm"
  " multi_label_sigmoid_step"
  " dropout_draws_depend_on_seed_and_step_and_not_on_devices",
)
BFLOAT16 = named(
  "models/test_families.py",
  "bfloat16_gives_logits_near_those_of_float32 logits_are_float32_and_all_else_is_bfloat16",
)
VIT = BFLOAT16 + named(
  "models/test_vit.py",
  "the_representation_layer_of_an_independent_implementation"
  " logits_of_an_independent_implementation initialisation_of_the_published_code"
  " other_sizes_are_refused_with_both_numbers any_size_that_the_patches_tile"
  " blocks_are_cast_but_for_their_layer_norms"
  " all_matmuls_but_the_logits_are_bfloat16_where_it_is_asked_for",
)
GRIDS = named(
  "models/test_stem.py",
  "the_grid_of_whole_strides maps_that_the_patches_do_not_tile_are_refused",
)
STACKED = named(
  "models/test_vit.py",
  "converters_undo_each_other stacking_refuses_a_gap_in_the_blocks"
  " stacked_blocks_start_from_different_draws logits_of_an_independent_implementation",
)
PERMUTATION = named(
  "data/test_permutation.py",
  "a_permutation_never_changes positions_that_there_are_not"
  " every_number_stands_at_one_position one_by_one_many_and_back_agree"
  " half_of_all_orders_are_even",
)
PIXELS = [
  *named(
    "data/test_decoding.py",
    "arrays_pass_through other_arrays_are_refused exif_orientation_is_applied",
  ),
  *named(
    "extras/test_cache.py",
    "the_smaller_side_is_reduced_and_the_aspect_kept",
  ),
]
RESIZES = named(
  "training/test_checks.py",
  "contradictions evaluation_needs_neither_training_data_nor_a_length",
)
FEATURES = named("evaluation/test_evaluate.py", "few_shot_and_nearest_neighbours")
PUBLISHED = named(
  "weights/test_published.py",
  "published_npz_gives_the_logits_of_an_independent_implementation",
)
FIGURES = named(
  "evaluation/test_catalogue.py",
  "metrics what_a_run_gives metrics_are_told_by_the_evaluation_that_they_belong_to",
)
VARIANTS = named(
  "evaluation/test_evaluate.py", "metrics_of_imagenets_variants files_of_an_evaluation"
)

TESTS: Mapping[str, list[str]] = {
  "vit_jax/learning/losses.py": [
    *below("learning", "losses mixup"),
    *below("evaluation", "classification"),
  ],
  "vit_jax/learning/optim.py": below("learning", "optim"),
  "vit_jax/learning/train_step.py": [*below("learning", "one_number mixup"), *OBJECTIVE, *STEP],
  "vit_jax/learning/mixing.py": below("learning", "mixup cutmix"),
  "vit_jax/extras/dino/objective.py": below("extras", "dino"),
  "vit_jax/extras/mae.py": below("extras", "mae"),
  "vit_jax/extras/masked_patches/corruption.py": below("learning", "corruption"),
  "vit_jax/extras/masked_patches/objective.py": below("learning", "masked_patches"),
  "vit_jax/extras/masked_patches/targets.py": below("learning", "patch_targets"),
  "vit_jax/learning/classification.py": [*below("learning", "classification mixup"), *STEP],
  "vit_jax/models/attention.py": [*below("models", "attention"), *VIT],
  "vit_jax/models/convolution.py": below("models", "convolution stem"),
  "vit_jax/models/branches.py": below("models", "later_parts"),
  "vit_jax/models/encoder.py": [
    *below("models", "block dropout_places positions later_parts"),
    *VIT,
    *STACKED,
  ],
  "vit_jax/models/mlp.py": [*below("models", "parts dropout_places"), *VIT],
  "vit_jax/models/pooling.py": below("models", "pooling"),
  "vit_jax/models/positions.py": [*below("models", "positions block"), *VIT],
  "vit_jax/models/relative_bias.py": below("models", "parts"),
  "vit_jax/models/rotary.py": below("models", "parts"),
  "vit_jax/models/vit_costs.py": below("models", "flops"),
  "vit_jax/models/layers.py": below("models", "norm gelu dropout head"),
  "vit_jax/models/backbone.py": [*below("models", "resnet"), *PUBLISHED, *BFLOAT16],
  "vit_jax/models/stacking.py": STACKED,
  "vit_jax/models/stem.py": [*PUBLISHED, *below("models", "stem")],
  "vit_jax/models/vit.py": [*VIT, *GRIDS, *below("models", "patches stages")],
  "vit_jax/data/batches.py": [
    *below("data", "batches pipeline device"),
    *named("training/test_mix.py", "batches_have_the_shares_of_the_weights"),
  ],
  "vit_jax/data/by_label.py": below("data", "by_label"),
  "vit_jax/data/sources/base.py": below("data", "layout"),
  "vit_jax/data/images.py": [*below("data", "crops evaluation_images partial_decoding"), *PIXELS],
  "vit_jax/data/order.py": [*below("data", "order"), *PERMUTATION],
  "vit_jax/data/pipeline.py": below("data", "pipeline broken_images"),
  "vit_jax/data/layout.py": below("data", "layout pipeline"),
  "vit_jax/data/crops.py": [
    *below("data", "cut crops resampling evaluation_images"),
    *RESIZES,
  ],
  "vit_jax/data/sources/subset.py": below("data", "subset overlap"),
  "vit_jax/devices/mesh.py": below("devices", "sharding"),
  "vit_jax/evaluation/classification.py": [
    *below("evaluation", "classification"),
    *named("evaluation/test_evaluated_model.py", "how_images_are_prepared_in_words"),
    *FIGURES,
    *VARIANTS,
  ],
  "vit_jax/evaluation/few_shot.py": [
    *below("evaluation", "few_shot"),
    "tests/test_precision.py",
    *FIGURES,
    *FEATURES,
  ],
  "vit_jax/evaluation/nearest_neighbours.py": [
    *below("evaluation", "nearest_neighbours"),
    "tests/test_precision.py",
    *FIGURES,
    *FEATURES,
  ],
  "vit_jax/extras/inspection/attention.py": below("extras/inspection", "attention distance"),
  "vit_jax/extras/inspection/distance.py": below("extras/inspection", "distance"),
  "vit_jax/extras/inspection/filters.py": below("extras/inspection", "filters"),
  "vit_jax/extras/inspection/maps.py": below("extras/inspection", "maps"),
  "vit_jax/extras/inspection/patches.py": below("extras/inspection", "patches"),
  "vit_jax/extras/inspection/principal.py": below("extras/inspection", "patches filters"),
  "vit_jax/extras/inspection/representation.py": below("extras/inspection", "representation"),
  "vit_jax/extras/inspection/similarity.py": below("extras/inspection", "similarity"),
  "vit_jax/weights/resizing.py": [
    *below("weights", "resize"),
  ],
  "vit_jax/weights/positions.py": [
    *below("weights", "fit"),
    *below("weights", "resize"),
    *below("weights", "rectangles"),
  ],
  "vit_jax/weights/fit.py": [
    *below("weights", "fit"),
    *named("training/test_init_from.py", "a_head_goes_by_the_names_of_its_classes"),
  ],
}
