"""Image encoders of timm in OpenCLIP, such as SigLIP's: they are read as timm's.

open_clip_config.json tells what timm's config.json would say. The arrays of the encoder have
"visual.trunk." before timm's names. A projection behind it ("visual.head.") becomes its head.
"""

import dataclasses
import pathlib
import re
from collections.abc import Iterable

import numpy as np

from vit_jax.config import MAX_SIDE
from vit_jax.extras.formats import timm, timm_hub
from vit_jax.weights import arrays, safetensors
from vit_jax.weights.card import Card, Rule, one_of, or_none, whole

Described = timm_hub.Described
NAME = "timm_model_name"
_A_NAME = or_none(Rule(lambda x: isinstance(x, str), "a name"))
# Keys of model_cfg.vision_cfg, with the library's defaults.
VISION = {
  NAME: (_A_NAME, None),
  "timm_model_kwargs": (or_none(Rule(lambda x: isinstance(x, dict), "arguments")), None),
  "timm_pool": (_A_NAME, "avg"),
  "timm_proj": (one_of("linear", "none", "", None), "linear"),
  "image_size": (whole(1, MAX_SIDE), 224),
}
_VISUAL = "visual."
_ENCODER = f"{_VISUAL}trunk."
_PROJECTION = f"{_VISUAL}head.proj."


def described(vision: dict, images: dict, path: pathlib.Path) -> Described:
  """What timm's config.json would say of the encoder.

  Args:
    vision: the settings in `VISION`.
    images: those of preprocess_cfg.
    path: of open_clip_config.json.

  Raises:
    ValueError: it computes something else than models of this project.
  """
  side = vision["image_size"]
  squash = images["resize_mode"] == "squash"
  prepared = {key: images[key] for key in ("mean", "std", "interpolation")}
  prepared |= dict(input_size=[3, side, side], crop_pct=1.0)
  prepared["crop_mode"] = "squash" if squash else "center"
  arguments = dict(vision["timm_model_kwargs"] or {})
  if vision["timm_pool"] or vision["timm_proj"] != "linear":
    arguments["global_pool"] = vision["timm_pool"]
  values = dict(architecture=vision[NAME], model_args=arguments)
  return timm_hub.describe(values | dict(pretrained_cfg=prepared), path)


def is_in(names: Iterable[str]) -> bool:
  """Whether the names of a file's arrays are of such an encoder."""
  return any(name.startswith(_ENCODER) for name in names)


def loaded(file: pathlib.Path, known: Described) -> dict:
  """The parameters of the encoder in a file.

  Raises:
    ValueError: there is none, or as `timm_hub.loaded`.
  """
  return timm_hub.loaded(_arrays(file), known)


def card_of(file: pathlib.Path, params: dict, known: Described) -> Card:
  """The card of the encoder in a file, whose head is a projection."""
  of_timm = timm_hub.card_of(file, params, safetensors.names_in(file), known)
  return dataclasses.replace(of_timm, projection="head" in params)


def _arrays(file: pathlib.Path) -> dict[str, np.ndarray]:
  """The arrays of the encoder under timm's names."""

  def wanted(name: str) -> bool:
    return name.startswith(_VISUAL) and not re.fullmatch(timm.NAMES.tables, name)

  visual = arrays.checked(safetensors.load_raw(file, wanted))
  if not is_in(visual):
    raise ValueError(f"{file.name} holds no image encoder of timm ({_ENCODER})")
  flat = {}
  for name, array in visual.items():
    short = name.removeprefix(_ENCODER).replace(_PROJECTION, "head.")
    if short in flat:
      raise ValueError(f"two arrays mean {short}; one of them is called {name}")
    flat[short] = array
  if "head.weight" in flat:
    flat.setdefault("head.bias", np.zeros(flat["head.weight"].shape[:1], np.float32))
  return flat
