"""Heads that project to the space of texts, as CLIP's do: their outputs are no classes."""

import dataclasses
import json

import numpy as np
import pytest
import safetensors.numpy

from tests import modules
from tests.weights import families
from vit_jax import models, weights
from vit_jax.data.images import evaluate_image
from vit_jax.extras.formats import open_clip, timm
from vit_jax.inference.model import load, read_model
from vit_jax.models.recognition import settings_of
from vit_jax.storage.tree import flatten
from vit_jax.weights import Weights
from vit_jax.weights.card import Card
from vit_jax.weights.translation import OURS

CLIP = dict(
  first_norm="tokens", patch_bias=False, activation="quick_gelu", norm_epsilon=1e-5, width=64
)

EVA = dict(first_norm="none", bias=0.1, num_classes=1024)  # its projection has a bias


def made(bias=0.0, **fields):
  """Parameters like those of CLIP, whose projection has no bias, and what their card says."""
  module = models.create("ViT-B/4", **families.VIT | CLIP | fields)
  params = modules.parameters(module, families.images(), train=False)
  params["head"] = params["head"] | {"bias": np.full(module.num_classes, bias, np.float32)}
  return params, Card(image_size=16, model=settings_of(module), projection=not bias)


def in_transformers(folder):
  weights.write(folder / "hf", Weights(*made()))
  assert not json.loads((folder / "hf" / "config.json").read_text())["id2label"]
  return folder / "hf"


def in_open_clip(folder, config=True):
  params, _ = made()
  flat = flatten(params)
  del flat["head/bias"]
  theirs = {f"visual.{name}": x for name, x in open_clip._TABLE.theirs(flat).items()}
  assert not open_clip._TABLE.lacking(flat, OURS)
  contiguous = {name: np.ascontiguousarray(x) for name, x in theirs.items()}
  safetensors.numpy.save_file(contiguous, folder / open_clip.WEIGHTS)
  if not config:
    return folder / open_clip.WEIGHTS
  vision = dict(image_size=16, width=64, head_width=32, patch_size=4)
  settings = dict(model_cfg=dict(vision_cfg=vision, quick_gelu=True))
  (folder / open_clip.CONFIG).write_text(json.dumps(settings))
  return folder


def in_open_clip_of_timm(folder, **vision):
  """An encoder of timm, whose projection is behind it."""
  flat = {f"visual.trunk.{name}": x for name, x in timm.to_timm(families.params("vit")).items()}
  flat["visual.head.proj.weight"] = flat.pop("visual.trunk.head.weight")
  del flat["visual.trunk.head.bias"]
  flat |= {"logit_scale": np.ones(1, np.float32), "text.positions": np.arange(3)}
  contiguous = {name: np.ascontiguousarray(x) for name, x in flat.items()}
  safetensors.numpy.save_file(contiguous, folder / open_clip.WEIGHTS)
  usual = dict(timm_model_name="vit_base_patch16_224", timm_pool="", timm_proj="linear")
  usual |= dict(timm_model_kwargs=dict(embed_dim=32, num_heads=2), image_size=16)
  images = dict(mean=[0.5] * 3, std=[0.5] * 3, resize_mode="squash")
  settings = dict(model_cfg=dict(vision_cfg=usual | vision), preprocess_cfg=images)
  (folder / open_clip.CONFIG).write_text(json.dumps(settings))
  return folder


def in_timm(folder, architecture="", *, bias=0.0, **fields):
  params, card = made(bias, **fields)
  flat = {name: np.ascontiguousarray(x) for name, x in timm.to_timm(params, card.model).items()}
  safetensors.numpy.save_file(flat, folder / "model.safetensors")
  if architecture:
    arguments = dict(embed_dim=64, num_heads=2)
    config = dict(architecture=architecture, model_args=arguments)
    (folder / "config.json").write_text(json.dumps(config))
  return folder / "model.safetensors"


def in_big_vision(folder):
  """Beside an encoder of texts."""
  pair = {f"params/img/{name}": x for name, x in flatten(families.params("vit")).items()}
  np.savez(folder / "pair.npz", **pair, **{"params/t": np.float32(1)})
  return folder / "pair.npz"


def in_a_file(folder):
  weights.write(folder / "w.npz", Weights(*made()))
  return folder / "w.npz"


@pytest.mark.parametrize(
  "source",
  [
    in_transformers,
    in_open_clip,
    lambda folder: in_open_clip(folder, config=False),
    in_open_clip_of_timm,
    in_timm,
    lambda folder: in_timm(folder, "vit_base_patch16_clip_224"),
    lambda folder: in_timm(folder, "eva_giant_patch14_clip_224", **EVA),
    in_a_file,
    in_big_vision,
  ],
)
def test_a_projection_names_no_classes_and_gives_features(tmp_path, source):
  model = load(source(tmp_path))
  assert model.has_head
  assert not model.classifies
  assert model.class_names == ()
  outputs = model.module.num_classes
  assert f"classes:    none; the head projects to {outputs:,} numbers" in repr(model)
  with pytest.raises(ValueError, match="these weights have a projection in place of a head of cl"):
    model.predict(np.zeros((1, 16, 16, 3), np.uint8))
  assert model.features(np.zeros((1, 16, 16, 3), np.uint8)).shape == (1, model.module.width)


def test_a_file_of_open_clip_alone_is_prepared_as_the_library_does_by_default(tmp_path, caplog):
  read = weights.read(in_open_clip(tmp_path, config=False)).card
  assert (read.image_size, read.resize, read.squeeze, read.guessed) == (16, 16, False, True)
  assert (
    "smaller side to 16 px, centre of 16 px, torchvision_bicubic. If they are not" in caplog.text
  )


def test_a_config_of_open_clip_is_honoured_beside_a_file(tmp_path, caplog):
  """Also if timm's own files are in the folder, which timm's config.json describes."""
  folder = in_open_clip(tmp_path)
  expected = weights.read(folder)
  found = weights.read(folder / open_clip.WEIGHTS)
  assert found.card == expected.card
  assert found.card.model.activation == "quick_gelu"
  families.assert_same_bits(found.params, expected.params)
  timms = in_timm(tmp_path, "vit_base_patch16_clip_224")
  both = weights.read(folder / open_clip.WEIGHTS)
  families.assert_same_bits(both.params, expected.params)
  assert weights.read(timms).card.model.activation == "gelu"
  assert "nothing says how its model computes" not in caplog.text
  weights.write(tmp_path / "ours.safetensors", Weights(*made()))
  assert weights.read(tmp_path / "ours.safetensors").card.image_size == 16
  (tmp_path / "damaged.safetensors").write_bytes(b"123")
  with pytest.raises(ValueError, match=r"damaged\.safetensors"):
    weights.read(tmp_path / "damaged.safetensors")


def test_an_encoder_of_timm_in_open_clip_is_read_as_timms(tmp_path, caplog):
  folder = in_open_clip_of_timm(tmp_path)
  read = weights.read(folder)
  params = families.params("vit")
  bare = {name: x for name, x in read.params.items() if name != "head"}
  families.assert_same_bits(bare, {name: params[name] for name in bare})
  np.testing.assert_array_equal(read.params["head"]["kernel"], params["head"]["kernel"])
  assert not read.params["head"]["bias"].any()
  assert (read.card.image_size, read.card.resize) == (16, 0)
  assert (read.card.model.activation, read.card.model.pool) == ("gelu", "class_token")
  assert weights.read(folder / open_clip.WEIGHTS).card == read.card
  assert not caplog.text


@pytest.mark.parametrize(
  ("vision", "message"),
  [
    (dict(timm_proj="mlp"), "timm_proj is 'mlp' and must be"),
    (dict(timm_pool="abs_attn"), "it pools by 'abs_attn'"),
    (dict(timm_model_kwargs=dict(gated_attn=True)), "made with gated_attn"),
    (dict(timm_model_name="vit_base_mci_224"), "with another stem of convolutions"),
  ],
)
def test_what_an_encoder_of_timm_in_open_clip_computes_otherwise_is_refused(
  tmp_path, vision, message
):
  with pytest.raises(ValueError, match=message):
    weights.read(in_open_clip_of_timm(tmp_path, **vision))


def test_an_encoder_without_the_norm_before_its_blocks_pools_otherwise(tmp_path):
  """CLIPA's; its config.json says so."""
  path = in_open_clip(tmp_path, config=False)
  flat = safetensors.numpy.load_file(path)
  others = {name: x for name, x in flat.items() if "ln_pre" not in name}
  safetensors.numpy.save_file(others, path)
  with pytest.raises(ValueError, match=r"no norm before its blocks \(ln_pre\.weight\)"):
    weights.read(path)


def test_metas_own_perception_encoder_is_refused(tmp_path):
  """Its arrays are some of CLIP's, and do not show its rotary positions."""
  path = in_open_clip(tmp_path, config=False)
  flat = safetensors.numpy.load_file(path)
  lacking = ("visual.proj", "visual.ln_post.weight", "visual.ln_post.bias")
  theirs = {name.removeprefix("visual."): x for name, x in flat.items() if name not in lacking}
  safetensors.numpy.save_file(theirs, path)
  with pytest.raises(ValueError, match=r"\(ln_post\.weight\), as Meta's .* Perception Encoder"):
    weights.read(path)


@pytest.mark.parametrize("config", [True, False])
def test_the_centre_is_that_of_torchvision(tmp_path, config):
  """OpenCLIP crops with torchvision's CenterCrop, which rounds halves to even."""
  pixels = np.random.default_rng(0).integers(0, 256, (16, 23, 3), np.uint8)
  card = weights.read(in_open_clip(tmp_path, config)).card
  prepared = evaluate_image(pixels, max_pixels=10**4, **card.preparation())
  np.testing.assert_array_equal(prepared, pixels[:, round((23 - 16) / 2) :][:, :16])


def test_without_a_projection_there_is_no_head(tmp_path):
  params, card = made()
  del params["head"]
  weights.write(tmp_path / "hf", Weights(params, card))
  model = read_model(tmp_path / "hf")
  assert (model.has_head, model.card.projection) == (False, False)


@pytest.mark.parametrize(
  ("architecture", "fields"),
  [
    ("", {}),
    ("vit_base_patch16_clip_224", {}),
    ("eva_giant_patch14_clip_224", EVA | dict(num_classes=5)),
  ],
)
def test_a_fine_tuned_clip_has_classes(tmp_path, architecture, fields):
  assert load(in_timm(tmp_path, architecture, **dict(bias=0.1) | fields)).classifies


@pytest.mark.parametrize(
  ("architecture", "outputs", "projects"),
  [
    ("eva02_base_patch16_clip_224.merged2b", 512, True),
    ("eva02_large_patch14_clip_336", 768, True),
    ("eva02_enormous_patch14_clip_224.laion2b_plus", 1024, True),
    ("eva02_large_patch14_clip_224", 1024, False),
    ("eva_giant_patch14_224.clip_ft_in1k", 1024, False),
  ],
)
def test_the_projection_of_eva_clip_has_a_bias(architecture, outputs, projects):
  params = {"head": {"bias": np.ones(outputs)}}
  assert timm.projects(params, architecture) == projects
  assert not timm.projects(params, architecture, labels=["cat"] * outputs)


@pytest.mark.parametrize(
  ("fields", "projection", "what"),
  [
    (dict(), False, "CLIPVisionModelWithProjection has no place for a head of classes"),
    (dict(first_norm="none", patch_bias=True), True, "has no place for a projection"),
  ],
)
def test_a_model_type_has_a_place_for_one_kind_of_head(tmp_path, fields, projection, what):
  params, card = made(**fields)
  known = dataclasses.replace(card, projection=projection)
  with pytest.raises(ValueError, match=what):
    weights.write(tmp_path / "hf", Weights(params, known))
