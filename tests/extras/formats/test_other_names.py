"""Arrays under the names of trainers and of other files than timm's, and timm's config.json."""

import json
import logging

import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy

from tests import modules
from tests.weights import families
from vit_jax import models, weights
from vit_jax.extras.formats import meta, timm, timm_hub
from vit_jax.inference.model import load, read_model
from vit_jax.models.recognition import settings_of
from vit_jax.storage.tree import flatten
from vit_jax.weights import position_count
from vit_jax.weights.card import Card
from vit_jax.weights.published import POSITIONS

HEADS = {"architecture": "mine", "model_args": {"num_heads": 2}}
HALF = dict(mean=[0.5] * 3, std=[0.5] * 3)


def stored(folder, flat, config=None, name="checkpoint.safetensors"):
  """A file with these arrays, and timm's config.json beside it."""
  contiguous = {key: np.ascontiguousarray(x) for key, x in flat.items()}
  safetensors.numpy.save_file(contiguous, folder / name)
  if config is not None:
    (folder / "config.json").write_text(json.dumps(HEADS | HALF | config))
  return folder / name


@pytest.mark.parametrize(
  "prefix",
  [
    *("module.", "model.", "backbone.", "encoder.", "vit.", "model.vit."),
    *("_orig_mod.", "module._orig_mod.model."),
  ],
)
def test_a_prefix_is_left_out_and_said(tmp_path, caplog, prefix):
  params = families.params("vit")
  flat = {prefix + name: x for name, x in timm.to_timm(params).items()}
  families.assert_same_bits(weights.load(stored(tmp_path, flat, {})), params)
  assert f"without their prefix '{prefix}'." in caplog.text
  assert "Left out" not in caplog.text


@pytest.mark.parametrize("prefix", ["", "module.", "vit.vit."])
def test_names_of_transformers_keep_their_beginning(tmp_path, prefix):
  name = "vit.embeddings.patch_embeddings.projection.weight"
  path = stored(tmp_path, {prefix + name: np.ones((1, 1), np.float32)})
  with pytest.raises(ValueError, match="its names are those of transformers; give the folder"):
    weights.load(path)


def test_other_parts_of_a_trainers_model_are_left_out_and_named(tmp_path, caplog):
  params = families.params("vit")
  flat = {f"backbone.{name}": x for name, x in timm.to_timm(params).items()}
  flat |= {"head.mlp.0.weight": np.zeros((2, 2), np.float32), "queue": np.zeros(1, np.int64)}
  families.assert_same_bits(weights.load(stored(tmp_path, flat, {})), params)
  assert "do not begin with it: 'head.mlp.0.weight', 'queue'." in caplog.text


@pytest.mark.parametrize(
  ("average", "other"),
  [
    ("teacher.", "student.module."),
    ("teacher.backbone.", "student.backbone."),
    ("target_encoder.", "encoder."),
    ("model_ema.", "model."),
    ("ema.", ""),
  ],
)
def test_of_several_models_the_average_is_read_and_the_others_are_named(
  tmp_path, caplog, average, other
):
  params = families.params("vit")
  raw = timm.to_timm(families.params("vit", seed=1))
  flat = {f"{average}{name}": x for name, x in timm.to_timm(params).items()}
  flat |= {f"{other}{name}": x for name, x in raw.items()}
  families.assert_same_bits(weights.load(stored(tmp_path, flat, {})), params)
  assert f"without their prefix {average!r}. It is a moving average; for " in caplog.text
  if other:
    assert f"OTHER.safetensors --model={other[:-1]}" in caplog.text


@pytest.mark.parametrize("parts", [("base_encoder", "momentum_encoder"), ("a.ema", "b.ema")])
def test_several_models_without_an_average_are_refused(tmp_path, parts):
  flat = timm.to_timm(families.params("vit"))
  both = {f"{part}.{name}": x for part in parts for name, x in flat.items()}
  message = rf"holds 2 models; for '{parts[0]}', '{parts[1]}': .* --model={parts[0]}"
  with pytest.raises(ValueError, match=message):
    weights.load(stored(tmp_path, both, {}))


def test_hybrids_and_bit_have_no_prefix(tmp_path, caplog):
  for family in ("hybrid", "bit"):
    flat = timm.to_timm(families.params(family))
    wrapped = {f"module.{name}": x for name, x in flat.items()}
    again = weights.load(stored(tmp_path, wrapped, HEADS, f"{family}.safetensors"))
    families.assert_same_bits(again, families.params(family))


def test_names_of_dinov2_itself(tmp_path, caplog):
  """Registers have no position embeddings; blocks are in chunks where training was sharded."""
  params = families.params("later")
  table = params["Transformer"]["posembed_input"]["pos_embedding"]
  table[:, 1:4] = 0
  flat = timm.to_timm(params)
  registers = flat.pop("reg_token")
  flat |= {"register_tokens": registers, "mask_token": np.zeros((1, 32), np.float32)}
  flat["pos_embed"] = np.delete(table, [1, 2, 3], axis=1)
  flat = {name.replace("blocks.", "blocks.0."): x for name, x in flat.items()}
  families.assert_same_bits(weights.load(stored(tmp_path, flat, {})), params)
  assert "Left out, because only its training needs it: 'mask_token'." in caplog.text
  with pytest.raises(ValueError, match="two arrays are the registers"):
    weights.load(stored(tmp_path, flat | {"reg_token": registers}, {}))
  twice = flat | {"blocks.1.norm1.bias": flat["blocks.0.1.norm1.bias"]}
  with pytest.raises(ValueError, match=r"two arrays mean blocks\.1\.norm1\.bias"):
    weights.load(stored(tmp_path, twice, {}))


def test_positions_are_resized_by_the_rule_of_the_files_own_code():
  usual = ["blocks.0.norm1.weight", "pos_embed"]
  assert timm.position_resizing(usual) == "bicubic_antialiased"
  assert timm.position_resizing([*usual, "mask_token"]) == "bicubic_offset"
  assert timm.position_resizing([*usual, "mask_token", "decoder_pos_embed"]) == "bicubic"
  assert timm.position_resizing([*usual, "mask_token", "register_tokens"]) == "bicubic_antialiased"
  of_beit = ["rel_pos_bias.relative_position_bias_table", "mask_token", "lm_head.weight"]
  assert timm.position_resizing(of_beit) == "bicubic_antialiased"


def test_a_file_alone_is_prepared_as_timm_does_by_default(tmp_path, caplog):
  params, known = made(width=64)
  flat = timm.to_timm(params, known)
  read = weights.read(stored(tmp_path, flat)).card
  assert (read.image_size, read.resize, read.squeeze) == (16, 17, False)
  assert read.guessed
  words = "smaller side to 17 px, centre of 16 px, torchvision_bicubic. If they are not"
  assert words in caplog.text


def test_a_resnet_alone_is_prepared_as_timm_does_by_default(tmp_path, caplog):
  """Its parameters do not tell the size of its images. What this project wrote needs no guess."""
  params = families.params("bit")
  weights.save(tmp_path / "ours.safetensors", params)
  assert weights.read(tmp_path / "ours.safetensors").card is None
  model = load(stored(tmp_path, timm.to_timm(params)))
  assert (model.card.image_size, model.card.resize, model.card.guessed) == (224, 256, True)
  assert "smaller side to 256 px, centre of 224 px, torchvision_bilinear. If" in caplog.text
  assert model.module == families.module("bit")


def test_a_file_alone_may_have_patches_of_another_shape_than_squares(tmp_path):
  module = models.create("ViT-B/4", **families.VIT | dict(width=64, patch=(4, 2)))
  images = np.zeros((1, 16, 8, 3), np.float32)
  params = modules.parameters(module, images, train=False)
  path = stored(tmp_path, timm.to_timm(params, settings_of(module)))
  read = weights.read(path).card
  assert (read.image_size, read.resize) == ((16, 8), (17, 8))


def test_the_representation_layer_of_earlier_timm(tmp_path):
  params = families.params("representation")
  layer = params["pre_logits"]
  flat = timm.to_timm({name: x for name, x in params.items() if name != "pre_logits"})
  flat |= {"pre_logits.fc.weight": layer["kernel"].T, "pre_logits.fc.bias": layer["bias"]}
  families.assert_same_bits(weights.load(stored(tmp_path, flat, {})), params)


@pytest.mark.parametrize("name", ["w.npz", "w.safetensors"])
def test_a_config_of_another_program_is_not_read_for_weights_of_ours(tmp_path, name):
  weights.save(tmp_path / name, families.params("vit"))
  (tmp_path / "config.json").write_text("[1]")
  families.assert_same_bits(weights.load(tmp_path / name), families.params("vit"))


def test_a_config_is_honoured_beside_any_name_of_file(tmp_path):
  params = families.params("vit")
  flat, other = timm.to_timm(params), dict(mean=[0.4] * 3, crop_pct=0.8)
  file = stored(tmp_path, flat)
  with pytest.raises(ValueError, match=r'put a config\.json .*"model_args": \{"num_heads": HEADS'):
    weights.load(file)
  stored(tmp_path, flat, other)
  for path in (file, tmp_path):
    read = weights.read(path)
    assert (read.card.image_size, read.card.resize) == (16, 20)
    assert not np.array_equal(read.params["embedding"]["bias"], params["embedding"]["bias"])
  weights.write(tmp_path / "ours.safetensors", weights.Weights(params, Card(16)))
  (tmp_path / "ours.safetensors.json").unlink()
  families.assert_same_bits(weights.load(tmp_path / "ours.safetensors"), params)
  with pytest.raises(ValueError, match=r"'checkpoint.safetensors', 'ours.safetensors'; name one"):
    weights.load(tmp_path)


# Position embeddings, images in config.json, and what is said.
@pytest.mark.parametrize(
  ("count", "config", "message"),
  [
    (25, dict(model_args=dict(num_heads=2, img_size=16)), "may be of 5 x 5 .* of 4 x 6 patches"),
    (19, {}, "its 19 position embeddings are of no square grid"),
    (25, dict(input_size=[3, 18, 18]), "says 16 patches, which is neither"),
  ],
)
def test_positions_of_images_of_an_unknown_size_are_refused(tmp_path, count, config, message):
  table = np.ones((1, count, 32), np.float32)
  flat = timm.to_timm(families.params("vit")) | {"pos_embed": table}
  with pytest.raises(ValueError, match=message):
    weights.load(stored(tmp_path, flat, config))


@pytest.mark.parametrize(
  ("count", "size", "zeros"),
  [(25, (16, 24), 0), (24, (16, 24), 1), (17, (8, 32), 0), (16, (8, 32), 1)],
)
def test_a_size_tells_the_grid(tmp_path, count, size, zeros):
  table = np.ones((1, count, 32), np.float32)
  flat = timm.to_timm(families.params("vit")) | {"pos_embed": table}
  path = stored(tmp_path, flat, dict(input_size=[3, *size], crop_pct=1.0))
  model = read_model(path).at_size()
  assert (model.card.image_size, model.card.resize) == (size, size)
  padded = flatten(model.params)[POSITIONS]
  assert padded.shape[1] == count + zeros
  assert (padded == 0).sum() == 32 * zeros


@pytest.mark.parametrize(
  ("count", "before", "side", "zeros"),
  [(26, 1, 0, 0), (25, 1, 20, 1), (25, 1, 0, 1), (26, 1, 16, 0), (16, 1, 16, 1), (16, 0, 0, 0)],
)
def test_zeros_for_tokens_without_positions(caplog, count, before, side, zeros):
  params = families.params("vit" if before else "gap")
  table = np.ones((1, count, 32), np.float32)
  params["Transformer"]["posembed_input"] = {"pos_embedding": table}
  padded = flatten(position_count.for_all_tokens(params, side))[POSITIONS]
  assert padded.shape[1] == count + zeros
  assert (padded == 0).sum() == 32 * zeros
  ambiguous = (count, side) == (25, 0)
  assert (
    "of 4 x 6 patches of images that are not square. Taken as 5 x 5" in caplog.text
  ) == ambiguous
  caplog.clear()
  with caplog.at_level(logging.WARNING):
    position_count.for_all_tokens(params, side, sure=True)
  assert not caplog.text


def made(**fields):
  """Parameters of a small model, and its other fields."""
  module = models.create("ViT-B/4", **families.VIT | fields)
  return modules.parameters(module, families.images(), train=False), settings_of(module)


# Meta's files of DINOv3, whose MLPs may be gated.
DINOV3 = dict(width=64, heads=4, positions="none", rotary="dinov3", registers=2, qkv_bias="no_key")
GATED = DINOV3 | dict(mlp="gated", activation="silu", norm_epsilon=1e-5)
PERIODS = {"rope_embed.periods": np.float32(100 ** (np.arange(4) / 4))}


def test_periods_tell_the_heads_of_dinov3(tmp_path):
  """Other models of this width have two."""
  params, known = made(**DINOV3)
  flat = timm.to_timm(params, known) | PERIODS
  families.assert_same_bits(weights.load(stored(tmp_path, flat)), params)


def in_bfloat16(count, base=100.0):
  """Periods as DINOv3's code computes them in this type."""
  exponents = 2 * jnp.arange(count, dtype=jnp.bfloat16) / jnp.bfloat16(2 * count)
  return np.asarray(jnp.bfloat16(base) ** exponents, np.float32)


@pytest.mark.parametrize("count", [4, 5, 9, 16, 18, 25, 32])
def test_rounded_periods_are_taken_as_the_exact_ones(count):
  assert meta.as_timm({"rope_embed.periods": in_bfloat16(count)}) == {}


def test_other_periods_than_ours_are_refused(tmp_path):
  params, known = made(**DINOV3)
  flat = timm.to_timm(params, known)
  for base in (90, 110, 10_000):
    other = flat | {"rope_embed.periods": in_bfloat16(4, base)}
    with pytest.raises(ValueError, match=r"\(rope_embed\.periods\) are not 100\^\(4k/Dh\)"):
      weights.load(stored(tmp_path, other))


def test_an_unknown_architecture_tells_no_more_than_a_file_alone(tmp_path, caplog):
  params, known = made(**GATED)
  flat = timm.to_timm(params, known)
  unknown = {"architecture": "mine"}
  with pytest.raises(ValueError, match="nothing tells which rotary positions its model has"):
    weights.read(stored(tmp_path, flat, unknown))
  read = read_model(stored(tmp_path, flat | PERIODS, unknown | {"model_args": {}}))
  assert "timm's model 'mine' is not known here. Taken as usual in timm" in caplog.text
  found = read.module
  assert (found.rotary, found.norm_epsilon, found.activation) == ("dinov3", 1e-5, "silu")
  families.assert_same_bits({name: read.params[name] for name in params}, params)


@pytest.mark.parametrize("config", [None, {}])
def test_gated_mlps_have_silu(tmp_path, config):
  params, known = made(mlp="gated", width=64, activation="silu")
  file = stored(tmp_path, timm.to_timm(params, known), config)
  assert weights.read(file).card.model.activation == "silu"


@pytest.mark.parametrize("config", [None, {}])
@pytest.mark.parametrize(
  ("fields", "epsilon"),
  [
    (dict(first_norm="tokens"), 1e-5),  # CLIP
    (dict(first_norm="patches", norm="rms"), 1e-5),  # AIMv2
    (dict(first_norm="tokens", norm="rms"), 1e-6),  # ViT of two layouts, "xp"
    (dict(), 1e-6),
  ],
)
def test_norms_before_the_blocks_tell_the_epsilon(tmp_path, caplog, config, fields, epsilon):
  params, known = made(width=64, **fields)
  file = stored(tmp_path, timm.to_timm(params, known), config)
  assert read_model(file).module.norm_epsilon == epsilon
  assert "rotary positions only if the arrays show them" in caplog.text


# MLP of the arrays, timm's name, arguments in config.json, the activation, and whether it is said.
@pytest.mark.parametrize(
  ("mlp", "architecture", "arguments", "activation", "said"),
  [
    ("gated", "vit_huge_patch14_224", {}, "silu", True),  # Virchow, whose code passes SwiGLU
    ("gated", "vit_huge_patch14_224", dict(act_layer="gelu"), "gelu", False),
    ("gated", "vit_giant_patch14_dinov2", {}, "silu", False),
    ("plain", "vit_giant_patch14_dinov2", {}, "gelu", True),
    ("plain", "vit_base_patch16_clip_quickgelu_224", {}, "quick_gelu", False),
  ],
)
def test_a_name_tells_the_activation_of_its_own_kind_of_mlp_alone(
  tmp_path, caplog, mlp, architecture, arguments, activation, said
):
  params, known = made(mlp=mlp, width=64)
  arguments = dict(num_heads=2, embed_dim=64) | arguments
  config = dict(architecture=architecture, model_args=arguments)
  read = weights.read(stored(tmp_path, timm.to_timm(params, known), config))
  assert read.card.model.activation == activation
  assert (
    f"these arrays have a {mlp} one. Their activation is taken as usual" in caplog.text
  ) == said
  advice = """among the model's arguments in the configuration, such as "act_layer": "gelu"."""
  assert (advice in caplog.text) == said  # OpenCLIP's has another name, and other keys


@pytest.mark.parametrize("headed", [True, False])
def test_tokens_in_place_of_pooling_matter_to_a_head_alone(tmp_path, headed):
  flat = timm.to_timm(families.params("vit"))
  config = dict(global_pool="", model_args=dict(num_heads=2, global_pool=""))
  if headed:
    with pytest.raises(ValueError, match=r"it pools by '' .*, and models here with such"):
      weights.read(stored(tmp_path, flat, config))
    return
  bare = {name: x for name, x in flat.items() if not name.startswith("head.")}
  assert read_model(stored(tmp_path, bare, config)).module.pool == "class_token"


@pytest.mark.parametrize(
  ("problem", "loss"),
  [
    ("multi_label_classification", "sigmoid"),
    ("single_label_classification", "softmax"),
    (None, "softmax"),
  ],
)
def test_transformers_says_in_timms_config_whether_an_image_has_several_labels(
  tmp_path, problem, loss
):
  flat = timm.to_timm(families.params("vit"))
  file = stored(tmp_path, flat, dict(problem_type=problem))
  assert weights.read(file).card.loss == loss


def test_other_problems_than_classification_are_refused(tmp_path):
  flat = timm.to_timm(families.params("vit"))
  with pytest.raises(ValueError, match="problem_type is 'regression' and must be"):
    weights.read(stored(tmp_path, flat, dict(problem_type="regression")))


# Fields, pool_include_prefix, and how it is read; None: it is refused.
@pytest.mark.parametrize(
  ("fields", "includes", "pool"),
  [
    (dict(pool="map_with_token"), None, None),
    (dict(pool="map_with_token"), True, "map_with_token"),
    (dict(pool="map_of_all", registers=1), True, "map_of_all"),
    (dict(pool="map_of_all", registers=1), False, "map"),
    (dict(pool="map"), True, "map"),
    (dict(pool="gap", registers=1), True, None),
    (dict(pool="gap", registers=1), False, "gap"),
    (dict(pool="class_token"), True, "class_token"),
  ],
)
def test_pooling_sees_class_token_and_registers_if_config_json_says_so(
  tmp_path, fields, includes, pool
):
  params, known = made(**fields)
  flat = timm.to_timm(params, known)
  stated = timm_hub._POOLS[fields["pool"]]
  arguments = dict(num_heads=2, global_pool=stated)
  if includes is not None:
    arguments["pool_include_prefix"] = includes
  file = stored(tmp_path, flat, dict(model_args=arguments, input_size=[3, 16, 16]))
  if pool:
    assert read_model(file).module.pool == pool
    return
  with pytest.raises(ValueError, match=r"its pooling is over .* \(pool_include_prefix\), and that"):
    weights.read(file)


@pytest.mark.parametrize("config", [None, {}, dict(architecture="naflexvit_base_patch16_gap")])
def test_images_of_any_proportions_are_refused_by_their_part(tmp_path, config):
  """timm's NaFlexViT, also under an unknown name."""
  params, known = made(pool="gap", positions="none", width=64)
  flat = timm.to_timm(params, known)
  others = {name.replace("patch_embed.", "embeds."): x for name, x in flat.items()}
  with pytest.raises(ValueError, match="NaFlex's embedding for images of any proportions"):
    weights.load(stored(tmp_path, others, config))


@pytest.mark.parametrize("stated", ["max", "avgmax"])
def test_other_pooling_is_refused_without_a_class_token_too(tmp_path, stated):
  params, known = made(pool="gap")
  file = stored(tmp_path, timm.to_timm(params, known), dict(global_pool=stated))
  with pytest.raises(ValueError, match=f"it pools by '{stated}' .* with such parameters by 'avg'"):
    weights.read(file)


def test_attention_pooling_beside_a_class_token_is_told_by_nothing_else(tmp_path):
  params, known = made(pool="map_with_token", width=64)
  with pytest.raises(ValueError, match="nothing tells which tokens its attention pooling sees"):
    weights.load(stored(tmp_path, timm.to_timm(params, known)))


@pytest.mark.parametrize(
  ("images", "expected"),
  [
    ({}, (20, False)),
    (dict(crop_pct=1.0), (18, False)),
    (dict(crop_pct=1.0, crop_mode="squash"), (18, True)),
    (dict(crop_pct=0.9, crop_mode="squash"), (20, True)),
  ],
)
def test_patches_that_do_not_tile_the_image_cover_its_centre(tmp_path, caplog, images, expected):
  flat = timm.to_timm(families.params("vit"))
  path = stored(tmp_path, flat, images | dict(input_size=[3, 18, 18]))
  read = read_model(path).at_size()
  assert read.card.image_size == 16
  assert (read.card.resize, read.card.squeeze) == expected
  assert "Patches of 4 pixels cover 16 of the 18 pixels of an image" in caplog.text
  families.assert_same_bits(read.params, families.params("vit"))


FIVE = ["a", "b", "c", "d", "e"]


@pytest.mark.parametrize(
  ("config", "expected"),
  [
    (dict(labels=FIVE), FIVE),
    (dict(label_names=FIVE), FIVE),
    (dict(pretrained_cfg=HALF | dict(label_names=FIVE)), FIVE),
    (dict(label_names={str(i): name for i, name in enumerate(FIVE)}), FIVE),
    (dict(label_names={"3": "d", "00": "a"}), ["a", "class 1", "class 2", "d", "class 4"]),
  ],
)
def test_names_of_classes_in_every_form_of_timm(tmp_path, config, expected):
  path = stored(tmp_path, timm.to_timm(families.params("vit")), config)
  assert weights.read(path).class_names() == tuple(expected)


@pytest.mark.parametrize("labels", [{"x": "a"}, {"0": 1}, {"9999999": "a"}, "a", [1]])
def test_other_names_of_classes_are_refused(tmp_path, labels):
  path = stored(tmp_path, timm.to_timm(families.params("vit")), dict(label_names=labels))
  with pytest.raises(
    ValueError, match=r"label_names is .* a list of texts, or texts by the numbers"
  ):
    weights.read(path)


@pytest.mark.parametrize("key", ["global_average_pool", "input_patchnorm"])
def test_what_an_encoder_of_open_clip_computes_otherwise_is_refused(tmp_path, key):
  def read(value):
    vision = {"width": 32, "output_tokens": True, key: value}
    config = json.dumps({"model_cfg": {"vision_cfg": vision}})
    (tmp_path / "open_clip_config.json").write_text(config)
    weights.read(tmp_path)

  with pytest.raises(ValueError, match=rf"open_clip_config\.json has {key}, which this project"):
    read(True)
  with pytest.raises(ValueError, match="it has no open_clip_model"):
    read(False)


@pytest.mark.parametrize(
  ("fields", "others", "left_out"),
  [
    (  # BEiT, as its authors pre-trained it
      dict(positions="relative_table", position_place="every_layer_shared", qkv_bias="no_key"),
      {"lm_head.weight": (8, 64), "lm_head.bias": (8,), "mask_token": (1, 1, 64)},
      "'lm_head.bias', 'lm_head.weight', 'mask_token'",
    ),
    (DINOV3, {"projectors.0.mlp.0.weight": (8, 64)}, "'projectors.0.mlp.0.weight'"),  # EUPE
  ],
)
def test_heads_that_only_training_needs_are_left_out_and_said(
  tmp_path, caplog, fields, others, left_out
):
  params, known = made(**dict(width=64) | fields)
  bare = {name: x for name, x in params.items() if name != "head"}
  flat = timm.to_timm(bare, known) | {name: np.ones(x, "f4") for name, x in others.items()}
  flat |= PERIODS if "rotary" in fields else {}
  families.assert_same_bits(weights.load(stored(tmp_path, flat)), bare)
  assert f"Left out, because only its training needs it: {left_out}." in caplog.text


def test_the_projector_of_moco_is_no_head_and_tells_its_attention_heads(tmp_path, caplog):
  """Its ViT-S has 12 heads, other models of this width 6."""
  params, known = made(width=384, heads=12)
  bare = {name: x for name, x in params.items() if name != "head"}
  projector = {"0.weight": (8, 384), "3.weight": (8, 8)}
  projector |= {f"1.{name}": (8,) for name in ("weight", "bias", "running_mean", "running_var")}
  flat = timm.to_timm(bare, known)
  flat |= {f"head.{name}": np.ones(shape, np.float32) for name, shape in projector.items()}
  file = stored(tmp_path, flat | {"head.1.num_batches_tracked": np.int64([7])})
  families.assert_same_bits(weights.load(file), bare)
  assert "because only its training needs it: 'head.0.weight', 'head.1.bias'," in caplog.text
  classifier = {name: x for name, x in flat.items() if "head.1" not in name}
  with pytest.raises(ValueError, match=r"head\.0\.weight is a part that neither"):
    weights.load(stored(tmp_path, classifier))


def test_tables_of_whole_numbers_in_files_of_beit_are_computed_here(tmp_path):
  params, known = made(positions="relative_table", qkv_bias="no_key", width=64)
  index = {f"blocks.{i}.attn.relative_position_index": np.zeros((17, 17), "i8") for i in range(2)}
  flat = timm.to_timm(params, known)
  families.assert_same_bits(weights.load(stored(tmp_path, flat | index)), params)
  families.assert_same_bits(weights.load(stored(tmp_path, flat | index, {})), params)
  with pytest.raises(ValueError, match="queue holds I64; weights are floating-point numbers"):
    weights.load(stored(tmp_path, flat | {"queue": np.zeros(1, "i8")}))
