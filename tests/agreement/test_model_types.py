"""Every model type of Transformers: its outputs at three sizes, on random weights, and exports.

Needs torch and transformers (the extra `agreement`); skipped, with this reason, without them.
"""

import dataclasses
import inspect
import json

import numpy as np
import pytest

from tests.weights import families
from vit_jax import models, weights
from vit_jax.inference.model import read_model
from vit_jax.models.recognition import differences
from vit_jax.registry import MODEL_TYPES

torch = pytest.importorskip("torch", reason="torch is not installed (extra `agreement`)")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
WIDTHS = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2)
SIZES = WIDTHS | dict(intermediate_size=64)
SMALL = SIZES | dict(image_size=32, patch_size=8)
DINOV2 = WIDTHS | dict(image_size=32, patch_size=8)
TEXT = WIDTHS | dict(intermediate_size=32)
BOTH = dict(vision_config=SMALL, text_config=TEXT)
FIVE = dict(num_labels=5)
SEVEN = dict(projection_dim=7)
HALF = dict(image_mean=[0.5] * 3, image_std=[0.5] * 3)


@dataclasses.dataclass(frozen=True)
class Case:
  """A model of the library.

  Attributes:
    kind: what its class is called, and that of its configuration.
    settings: of the configuration.
    patches: the number of its outputs before those of the patches; None: they differ from ours.
    exported: the class that an export of ours has.
    options: arguments of the model.
    sides: sizes of images.
  """

  kind: tuple[str, str]
  settings: dict
  patches: int | None
  exported: str
  options: dict = dataclasses.field(default_factory=dict)
  sides: tuple[int, ...] = (32, 16, 40)


def alone(kind, of, settings, patches, **others):
  """A case whose export has the same class."""
  return Case((kind, of), settings, patches, kind, **others)


PRE = dict(add_pooling_layer=False)
SAME = dict(sides=(32,))  # another case resizes the same positions
CASES = {
  "vit": alone("ViTForImageClassification", "ViT", SMALL | FIVE, 1),
  "vit, grey": alone("ViTModel", "ViT", SMALL | dict(num_channels=1), 1, options=PRE, **SAME),
  "vit alone": alone("ViTModel", "ViT", SMALL, 1, options=PRE, **SAME),
  "mae": Case(("ViTMAEModel", "ViTMAE"), SMALL | dict(mask_ratio=0.0), 1, "ViTModel"),
  "msn": Case(
    ("ViTMSNForImageClassification", "ViTMSN"),
    SMALL | FIVE,
    None,
    "ViTForImageClassification",
    **SAME,
  ),
  "msn alone": Case(("ViTMSNModel", "ViTMSN"), SMALL, 1, "ViTModel"),
  "deit alone": alone("DeiTModel", "DeiT", SMALL, 2, options=PRE),
  "deit": alone("DeiTForImageClassificationWithTeacher", "DeiT", SMALL | FIVE, None, **SAME),
  "deit, one head": Case(
    ("DeiTForImageClassification", "DeiT"),
    SMALL | FIVE,
    None,
    "DeiTForImageClassificationWithTeacher",
    **SAME,
  ),
  "ijepa": alone("IJepaForImageClassification", "IJepa", SMALL | FIVE, 0),
  "ijepa alone": alone("IJepaModel", "IJepa", SMALL, 0, **SAME),
  "dinov2": alone("Dinov2Model", "Dinov2", DINOV2, 1),
  "dinov2, giant": alone("Dinov2Model", "Dinov2", DINOV2 | dict(use_swiglu_ffn=True), 1, **SAME),
  "dinov2 with a head": alone(
    "Dinov2ForImageClassification", "Dinov2", DINOV2 | FIVE, None, **SAME
  ),
  "dinov2 with registers": alone("Dinov2WithRegistersModel", "Dinov2WithRegisters", DINOV2, 5),
  "dinov3": alone("DINOv3ViTModel", "DINOv3ViT", SMALL | dict(num_register_tokens=4), 5),
  "dinov3, gated": alone(
    "DINOv3ViTModel",
    "DINOv3ViT",
    SMALL | dict(num_register_tokens=4, use_gated_mlp=True, hidden_act="silu", key_bias=True),
    5,
    **SAME,
  ),
  "clip": alone(
    "CLIPVisionModelWithProjection", "CLIPVision", SMALL | dict(projection_dim=7), None
  ),
  "clip alone": alone("CLIPVisionModel", "CLIPVision", SMALL, None, **SAME),
  "clip with text": Case(
    ("CLIPModel", "CLIP"),
    BOTH | SEVEN,
    None,
    "CLIPVisionModelWithProjection",
    **SAME,
  ),
  "siglip": alone("SiglipVisionModel", "SiglipVision", SMALL, 0),
  "siglip with text": Case(("SiglipModel", "Siglip"), BOTH, 0, "SiglipVisionModel", **SAME),
  "siglip with a head": Case(
    ("SiglipForImageClassification", "Siglip"), BOTH | FIVE, 0, "IJepaForImageClassification"
  ),
  "beit": alone(
    "BeitForImageClassification",
    "Beit",
    SMALL | FIVE | dict(use_relative_position_bias=True),
    None,
  ),
  "beit, shared": alone(
    "BeitForImageClassification",
    "Beit",
    SMALL | FIVE | dict(use_shared_relative_position_bias=True, use_mean_pooling=False),
    None,
  ),
  "beit alone": alone(
    "BeitModel",
    "Beit",
    SMALL | dict(use_absolute_position_embeddings=True, layer_scale_init_value=0.0),
    None,
  ),
}


def saved(name, folder):
  """A model of the case with this name, as `made` makes it."""
  case = CASES[name]
  return made(*case.kind, case.settings, folder, **case.options)


def made(kind, of, settings, folder, **options):
  """A model with random weights, in a folder as published ones are."""
  config = getattr(transformers, f"{of}Config")(**settings)
  model = getattr(transformers, kind)(config, **options).eval()
  generator = torch.Generator().manual_seed(0)
  with torch.no_grad():
    for x in model.parameters():
      x.copy_(torch.randn(x.shape, generator=generator) * (0.3 if x.ndim < 4 else 0.05))
    if kind == "Dinov2ForImageClassification":
      model.classifier.weight[:, 32:] = 0  # of the mean of the patches
  model.save_pretrained(folder)
  prepared = dict(image_processor_type="ViTImageProcessor", size=32) | HALF
  (folder / "preprocessor_config.json").write_text(json.dumps(prepared))
  return model


def outputs(model, images):
  """Of the library: logits, or pooled features and the outputs of all tokens, if it gives them."""
  pixels = torch.from_numpy(images.transpose(0, 3, 1, 2).copy())
  encoder = getattr(model, "vision_model", model)
  options = {}
  if "interpolate_pos_encoding" in inspect.signature(encoder.forward).parameters:
    options["interpolate_pos_encoding"] = True
  if "noise" in inspect.signature(model.forward).parameters:  # the order of the patches
    options["noise"] = torch.arange(pixels.shape[2] // 8 * (pixels.shape[3] // 8) * 1.0)[None]
  with torch.no_grad():
    if hasattr(model, "text_model"):
      found = encoder(pixel_values=pixels, **options)
      if hasattr(model, "visual_projection"):
        found = {"image_embeds": model.visual_projection(found.pooler_output)}
    else:
      found = model(pixel_values=pixels, **options)
  if not isinstance(found, dict):
    found = vars(found)
  names = ("logits", "image_embeds", "pooler_output", "last_hidden_state")
  found = {name: found.get(name) for name in names}
  return {name: x.numpy() for name, x in found.items() if x is not None}


def difference(ours, theirs):
  """The largest, as a part of the largest output."""
  assert theirs.std() > 0.05
  return np.abs(ours - theirs).max() / np.abs(theirs).max()


@pytest.mark.parametrize("name", CASES)
def test_outputs_at_three_sizes(name, tmp_path, record_property):
  model = saved(name, tmp_path)
  loaded = read_model(tmp_path)
  if "ForImageClassification" in CASES[name].kind[0]:
    assert loaded.card.class_names == tuple(model.config.id2label.values())
  found = []
  for side in CASES[name].sides:
    images = families.images(side, batch=1)[..., : loaded.card.channels]
    theirs = outputs(model, images)
    ours = loaded.at_size(side)
    # Without compilation, as all models have layers of the same few shapes.
    logits, features = ours.module.apply({"params": ours.params}, images, train=False)
    mine = dict(logits=logits, image_embeds=logits, pooler_output=features["pre_logits"])
    if CASES[name].patches is not None and "last_hidden_state" in theirs:
      mine["last_hidden_state"] = features["patches"]
      theirs["last_hidden_state"] = theirs["last_hidden_state"][:, CASES[name].patches :]
    found += [difference(mine[key], theirs[key]) for key in mine.keys() & theirs.keys()]
  record_property("largest difference", float(max(found)))
  assert max(found) < 1e-5


@pytest.mark.parametrize("name", CASES)
def test_exports(name, tmp_path):
  """What we write has the same parameters, and the library computes the same with it."""
  model = saved(name, tmp_path / "theirs")
  read = weights.read(tmp_path / "theirs")
  weights.write(tmp_path / "ours", read, "huggingface")
  written = json.loads((tmp_path / "ours/config.json").read_text())
  assert written["architectures"] == [CASES[name].exported]
  families.assert_same_bits(weights.load(tmp_path / "ours"), read.params)
  kind = getattr(transformers, CASES[name].exported)
  again = kind.from_pretrained(tmp_path / "ours", **CASES[name].options).eval()
  images = families.images(32, batch=1)[..., : read.card.channels]
  before, after = outputs(model, images), outputs(again, images)
  assert before.keys() & after.keys()
  for key in before.keys() & after.keys():
    assert difference(after[key], before[key]) < 1e-5


def test_beit_that_predicts_masked_patches(tmp_path):
  """The library's norm of all tokens is one of its head for these."""
  settings = SMALL | dict(use_shared_relative_position_bias=True, use_mask_token=True)
  model = made("BeitForMaskedImageModeling", "Beit", settings | dict(vocab_size=9), tmp_path)
  images = families.images(32, batch=1)
  theirs = outputs(model.beit, images)["last_hidden_state"]
  with torch.no_grad():
    theirs = model.layernorm(torch.from_numpy(theirs)).numpy()
  loaded = read_model(tmp_path)
  _, features = loaded.module.apply({"params": loaded.params}, images, train=False)
  assert difference(features["patches"], theirs[:, 1:]) < 1e-5
  assert difference(features["pre_logits"], theirs[:, 0]) < 1e-5


@pytest.mark.parametrize(
  ("name", "case"),
  [
    ("facebook/deit-base-distilled-patch16-224", "deit"),
    ("facebook/dinov2-giant", "dinov2, giant"),
    ("facebook/dinov3-vits16-pretrain-lvd1689m", "dinov3"),
    ("openai/clip-vit-base-patch32", "clip"),
    ("microsoft/beit-large-patch16-384", "beit"),
  ],
)
def test_a_name_of_the_hub_says_what_its_folder_says(name, case, tmp_path):
  """All but the sizes, which are small here."""
  saved(case, tmp_path)
  loaded = read_model(tmp_path).module
  sizes = {key: getattr(loaded, key) for key in ("patch", "depth", "width", "mlp_dim", "heads")}
  assert not differences(models.create(name, **sizes), loaded)


def test_every_model_type_is_tried():
  kinds = {getattr(transformers, f"{case.kind[1]}Config").model_type for case in CASES.values()}
  assert kinds == set(MODEL_TYPES)
