"""Reads a folder as timm publishes models on the Hub: model.safetensors with timm's config.json.

The config tells the model's name, and how its images are prepared. Another mean and deviation of
pixels than this project's is multiplied into the patch embedding.
"""

import logging
import math
import pathlib
import re

import numpy as np

from vit_jax.config import MAX_SIDE
from vit_jax.models.gelu import FORMS
from vit_jax.weights import arrays, card, safetensors, timm
from vit_jax.weights.card import Card, read_json

CONFIG, WEIGHTS = "config.json", "model.safetensors"
# Models whose name alone tells what else than the usual they compute.
_TANH = re.compile(
  r"vit_(base_patch32|so400m_patch16|giantopt_patch16)_siglip.*"
  r"|vit_large_patch16_siglip(_gap)?_512"
)
_HEADS = {"vit_base_patch16_gap_224": 16} | {
  f"vit_giantopt_patch16_siglip_{kind}": 16 for kind in ("256", "384", "gap_256", "gap_384")
}
# Arguments of timm's VisionTransformer that change nothing here, or that its arrays tell.
_ARGUMENTS = {
  *("img_size", "patch_size", "in_chans", "num_classes", "embed_dim", "depth", "num_heads"),
  *("mlp_ratio", "qkv_bias", "proj_bias", "qk_norm", "init_values", "reg_tokens", "class_token"),
  *("no_embed_class", "pre_norm", "fc_norm", "final_norm", "global_pool", "act_layer"),
  *("drop_rate", "pos_drop_rate", "patch_drop_rate", "proj_drop_rate", "attn_drop_rate"),
  *("drop_path_rate", "weight_init", "fix_init", "dynamic_img_size", "strict_img_size"),
}
_log = logging.getLogger(__name__)


def tells_of(path: pathlib.Path) -> bool:
  """Whether the path is such a folder, or the weights inside without a card of this project."""
  if path.is_file() and (path.name != WEIGHTS or card.path_beside(path).is_file()):
    return False
  config = (path if path.is_dir() else path.parent) / CONFIG
  if not config.is_file():
    return False
  settings = read_json(config)
  return isinstance(settings, dict) and isinstance(settings.get("architecture"), str)


def read(folder: pathlib.Path) -> tuple[dict, Card]:
  """Reads a tree of NumPy arrays, and the card.

  Raises:
    ValueError: the model has parts that this project's models do not have, or its images are
      prepared in a way that this project does not know.
  """
  settings = read_json(folder / CONFIG)
  images = settings.get("pretrained_cfg", settings)
  asked = settings.get("model_args") or {}
  if not isinstance(images, dict) or not isinstance(asked, dict):
    raise ValueError(f"{folder / CONFIG} does not describe a model of timm.")
  try:
    params = _params(folder / WEIGHTS, settings, images, asked)
    return params, _card(params, settings, images, asked)
  except (TypeError, KeyError, OverflowError) as error:
    raise ValueError(f"{folder / CONFIG} does not describe a model of timm: {error}.") from error


def _params(path, settings, images, asked):
  if unknown := sorted(set(asked) - _ARGUMENTS):
    raise ValueError(
      f"its model was made with {', '.join(unknown)}, which this project does not know"
    )
  heads = asked.get("num_heads") or _HEADS.get(settings["architecture"], 0)
  flat = safetensors.load_flat(path)
  with arrays.reading(path, "timm's"):
    params = timm.from_timm(flat, int(heads))
    if "cls" in params and settings.get("global_pool", "token") != "token":
      raise ValueError("it has a class token and pools the patches, which no model here does")
    return _for_our_pixels(params, images)


def _for_our_pixels(params, images):
  """Changes the patch embedding so that it takes pixels of this project, from -1 to 1."""
  mean, deviation = (np.asarray(images.get(key, [0.5] * 3), float) for key in ("mean", "std"))
  if mean.shape != (3,) or deviation.shape != (3,) or not (deviation > 0).all():
    raise ValueError(f"mean {mean} and std {deviation} must be three numbers each, std above 0")
  if (mean == 0.5).all() and (deviation == 0.5).all():
    return params
  if "resnet" in params or "conv_root" in params:
    raise ValueError(
      f"its pixels have mean {mean} and std {deviation}; with a ResNet they must be 0.5"
    )
  kernel = params["embedding"]["kernel"].astype(float)  # (P, P, 3, D)
  shift = np.einsum("hwcd,c->d", kernel, (0.5 - mean) / deviation)
  kernel = kernel * (0.5 / deviation)[:, None]
  bias = params["embedding"]["bias"] + shift
  return params | {"embedding": {"kernel": np.float32(kernel), "bias": np.float32(bias)}}


def _card(params, settings, images, asked):
  told = card.inferred(params)
  side = told.image_size or int(images.get("input_size", (3, 224, 224))[-1])
  share, mode = float(images.get("crop_pct") or 1), images.get("crop_mode", "center")
  if mode not in ("center", "squash") or (mode == "squash" and share < 1) or not 0.1 < share <= 1:
    raise ValueError(
      f"images are cropped by {mode!r} with crop_pct {share}, which is not known here"
    )
  if not 0 < side <= MAX_SIDE:
    raise ValueError(f"its images have {side} pixels")
  names = settings.get("label_names") or images.get("label_names") or ()
  activation = asked.get("act_layer") or (
    "gelu_tanh" if _TANH.fullmatch(settings["architecture"]) else timm.ACTIVATION
  )
  if activation not in FORMS:
    raise ValueError(f"its act_layer is {activation!r} and must be one of {', '.join(FORMS)}")
  if images.get("interpolation", "bilinear") != "bilinear":
    _log.warning(
      "timm resizes images for it by %s; this project does so bilinearly.", images["interpolation"]
    )
  return Card(
    image_size=side,
    resize=0 if mode == "squash" else math.floor(side / share),
    class_names=tuple(map(str, names)) if isinstance(names, list) else (),
    activation=activation,
  )
