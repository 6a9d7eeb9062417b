"""Reads a folder as timm publishes models on the Hub: model.safetensors with timm's config.json.

The config tells the model's name, and how its images are prepared. Another mean and deviation of
pixels than this project's is multiplied into the patch embedding.
"""

import math
import pathlib

from vit_jax import models
from vit_jax.config import MAX_SIDE, model_names
from vit_jax.config.data import FILTERS
from vit_jax.models.layers import GELU_FORMS
from vit_jax.weights import card, pickled, pixels, safetensors, timm
from vit_jax.weights.card import Card
from vit_jax.weights.format import WeightFormat
from vit_jax.weights.rules import (
  TEXTS,
  Rule,
  checked,
  number,
  one_of,
  or_none,
  read_json,
  three,
  whole,
)

CONFIG, WEIGHTS = "config.json", "model.safetensors"
# Arguments of timm's VisionTransformer that change nothing here, or that its arrays tell.
_ARGUMENTS = {
  *("img_size", "patch_size", "in_chans", "num_classes", "embed_dim", "depth", "num_heads"),
  *("mlp_ratio", "qkv_bias", "proj_bias", "qk_norm", "init_values", "reg_tokens", "class_token"),
  *("no_embed_class", "pre_norm", "fc_norm", "final_norm", "global_pool", "act_layer"),
  *("drop_rate", "pos_drop_rate", "patch_drop_rate", "proj_drop_rate", "attn_drop_rate"),
  *("drop_path_rate", "weight_init", "fix_init", "dynamic_img_size", "strict_img_size"),
}
COMPUTED = {
  "architecture": (Rule(lambda x: isinstance(x, str), "a name"), ""),
  "global_pool": (Rule(lambda x: isinstance(x, str), "a name"), "token"),
  "label_names": (or_none(TEXTS), None),
}
ARGUMENTS = {
  "num_heads": (or_none(whole(1, 10**4)), None),
  "act_layer": (one_of(*GELU_FORMS, None), None),
}
IMAGES = {
  "mean": (three(number(-10, 10)), [0.5] * 3),
  "std": (three(number(0.001, 1000)), [0.5] * 3),
  "input_size": (three(whole(1, MAX_SIDE)), [3, 224, 224]),
  "crop_pct": (number(0.1, 1), 1.0),
  "crop_mode": (one_of("center", "squash"), "center"),
  "interpolation": (one_of(*FILTERS), "bicubic"),
  "label_names": (or_none(TEXTS), None),
}


def _recognises(path: pathlib.Path) -> bool:
  """Whether a path is such a folder, or the weights inside without a card of this project."""
  if path.is_file() and (path.name != WEIGHTS or card.path_beside(path).is_file()):
    return False
  config = _folder(path) / CONFIG
  settings = read_json(config) if config.is_file() else None
  return isinstance(settings, dict) and isinstance(settings.get("architecture"), str)


def _folder(path: pathlib.Path) -> pathlib.Path:
  return path if path.is_dir() else path.parent


def _settings(path: pathlib.Path) -> tuple[dict, dict, dict]:
  """What config.json says: of the model, of the images, and the arguments of the model."""
  file = _folder(path) / CONFIG
  settings = read_json(file)
  images, arguments = settings.get("pretrained_cfg", settings), settings.get("model_args") or {}
  if not isinstance(images, dict) or not isinstance(arguments, dict):
    raise ValueError(f"its {CONFIG} does not describe a model of timm")
  if unknown := sorted(set(arguments) - _ARGUMENTS):
    raise ValueError(
      f"its model was made with {', '.join(unknown)}, which this project does not know"
    )
  meaning = model_names.translated(settings["architecture"])
  if meaning and meaning.lacking:
    raise ValueError(
      f"it is a {settings['architecture']}, with {meaning.lacking}, which no model here has"
    )
  parts = (settings, COMPUTED), (images, IMAGES), (arguments, ARGUMENTS)
  return tuple(checked(values, rules, file) for values, rules in parts)


def _load(path: pathlib.Path) -> dict:
  settings, images, arguments = _settings(path)
  if not (_folder(path) / WEIGHTS).is_file():
    raise ValueError(pickled.advice_in(_folder(path)) or f"it has no {WEIGHTS}")
  heads = arguments["num_heads"] or _usual(settings["architecture"], "heads", 0)
  params = timm.from_timm(safetensors.load_arrays(_folder(path) / WEIGHTS), heads)
  if "cls" in params and settings["global_pool"] != "token":
    raise ValueError("it has a class token and pools the patches, which no model here does")
  return pixels.folded(params, images["mean"], images["std"])


def _card(path: pathlib.Path, params: dict | None) -> Card | None:
  if not params:
    return None  # nothing tells what they were trained on
  settings, images, arguments = _settings(path)
  side = card.inferred(params).image_size or images["input_size"][-1]
  return Card(
    image_size=side,
    resize=_resize(side, images["crop_pct"], images["crop_mode"]),
    squeeze=images["crop_mode"] == "squash" and images["crop_pct"] < 1,
    resampling=f"torchvision_{images['interpolation']}",
    position_resizing=timm.POSITION_RESIZING,
    class_names=tuple(settings["label_names"] or images["label_names"] or ()),
    stem_norms=timm.stem_norms(params),
    activation=arguments["act_layer"]
    or _usual(settings["architecture"], "activation", timm.ACTIVATION),
  )


def _resize(side: int, share: float, mode: str) -> int:
  """The side that images are resized to; 0 if they become the square at once."""
  resize = math.floor(side / share)
  return 0 if mode == "squash" and resize == side else resize


def _usual(architecture: str, field: str, otherwise):
  """A field of the model that timm calls so, if it is one of ours and has the field."""
  meaning = model_names.translated(architecture)
  known = meaning is not None and meaning.same
  return getattr(models.create(architecture), field, otherwise) if known else otherwise


TIMM = WeightFormat(words="a folder of timm", recognises=_recognises, load=_load, card=_card)
