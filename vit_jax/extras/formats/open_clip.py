"""Image encoders of CLIP under the names of OpenCLIP and of OpenAI, without their text encoders.

A file has names that begin with "visual." (vit_jax/weights/prefixes.py). In a folder of OpenCLIP,
open_clip_config.json says how the model computes and how its images are prepared. The projection to
the space of texts is the head, without a bias.
"""

import logging
import pathlib
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from vit_jax.config import MAX_SIDE, Model
from vit_jax.extras.formats import open_clip_timm, pickled, timm
from vit_jax.extras.formats.huggingface_images import CLIP_COLOURS
from vit_jax.storage.tree import nest
from vit_jax.weights import card, pixels, safetensors
from vit_jax.weights.card import Card, checked, number, one_of, three, whole
from vit_jax.weights.format import ArrayNames, WeightFormat
from vit_jax.weights.published import POSITIONS
from vit_jax.weights.translation import (
  CONVOLUTION,
  DENSE,
  FROM_HEADS,
  SAME,
  TABLE,
  THEIRS,
  TO_HEADS,
  TO_HEADS_BIAS,
  TOKEN,
  Table,
  layer,
  norm,
)

CONFIG = "open_clip_config.json"
WEIGHTS = "open_clip_model.safetensors"
SUFFIX = ".safetensors"
_BLOCK = "Transformer/encoderblock_{0}"
_THEIRS = "transformer.resblocks.{0}"
_ATTENTION = f"{_BLOCK}/MultiHeadDotProductAttention_1"
_PARTS = ("query", "key", "value")
_TABLE = Table(
  ("cls", "class_embedding", TOKEN),
  (POSITIONS, "positional_embedding", TABLE),
  ("embedding/kernel", "conv1.weight", CONVOLUTION),
  *norm("Transformer/first_norm", "ln_pre"),
  *norm(f"{_BLOCK}/LayerNorm_0", f"{_THEIRS}.ln_1"),
  *((f"{_ATTENTION}/{x}/kernel", f"{_THEIRS}.attn.in_proj_weight", TO_HEADS) for x in _PARTS),
  *((f"{_ATTENTION}/{x}/bias", f"{_THEIRS}.attn.in_proj_bias", TO_HEADS_BIAS) for x in _PARTS),
  *layer(f"{_ATTENTION}/out", f"{_THEIRS}.attn.out_proj", FROM_HEADS),
  (f"{_BLOCK}/LayerScale_1/scale", f"{_THEIRS}.ls_1.gamma", SAME),
  *norm(f"{_BLOCK}/LayerNorm_2", f"{_THEIRS}.ln_2"),
  *layer(f"{_BLOCK}/MlpBlock_3/Dense_0", f"{_THEIRS}.mlp.c_fc", DENSE),
  *layer(f"{_BLOCK}/MlpBlock_3/Dense_1", f"{_THEIRS}.mlp.c_proj", DENSE),
  (f"{_BLOCK}/LayerScale_3/scale", f"{_THEIRS}.ls_2.gamma", SAME),
  *norm("Transformer/encoder_norm", "ln_post"),
  ("head/kernel", "proj", SAME),
)
EPSILON = 1e-5
POSITION_RESIZING = "bicubic_antialiased"  # of the library, when it loads weights for another size
_SIDE = whole(1, MAX_SIDE)
_OFF = one_of(False, None)
_NONE = one_of(None)
# Keys of model_cfg.vision_cfg, with the library's defaults; sizes follow from the arrays.
VISION = {
  "head_width": (whole(1, 2**10), 64),
  "patch_size": (whole(1, 9999), 16),
  "image_size": (_SIDE, 224),
  "pos_embed_type": (one_of("learnable"), "learnable"),
  "pool_type": (one_of("tok"), "tok"),
  **dict.fromkeys(("act_kwargs", "norm_kwargs", "block_type"), (_NONE, None)),
  **dict.fromkeys(("attentional_pool", "no_ln_pre", "final_ln_after_pool"), (_OFF, False)),
  **dict.fromkeys(("qk_norm", "scaled_cosine_attn", "scale_heads"), (_OFF, False)),
  **dict.fromkeys(("scale_attn_inner", "scale_attn", "scale_fc"), (_OFF, False)),
}
# Its keys without effect here: sizes, which follow from the arrays; what training needs; and what
# belongs to options that are refused.
_OTHERS = {
  *("layers", "width", "mlp_ratio", "image_seq_len", "ls_init_value", "patch_dropout"),
  *("attn_pooler_queries", "attn_pooler_heads", "n_queries", "output_tokens"),
  *("timm_model_pretrained", "timm_proj_bias", "timm_drop", "timm_drop_path"),
}
# Keys of preprocess_cfg.
IMAGES = {
  "mean": (three(number(-10, 10)), CLIP_COLOURS[0]),
  "std": (three(number(0.001, 1000)), CLIP_COLOURS[1]),
  "interpolation": (one_of("bicubic", "bilinear"), "bicubic"),
  "resize_mode": (one_of("shortest", "squash"), "shortest"),
}
_log = logging.getLogger(__name__)


def recognised(names: Iterable[str]) -> bool:
  """Whether the names of a file's arrays are those of an image encoder of OpenCLIP."""
  return {"class_embedding", "transformer.resblocks.0.ln_1.weight"} <= set(names)


def from_open_clip(flat: dict[str, np.ndarray], heads: int = 0) -> dict:
  """Makes our tree from the arrays of an image encoder.

  Args:
    flat: {OpenCLIP's name: array}.
    heads: attention heads; 0: as many as models of this width have.

  Raises:
    ValueError: the model has something that ours do not have, which the message names.
  """
  if "ln_pre.weight" not in flat:
    raise ValueError(
      "it has no norm before its blocks (ln_pre.weight), and such models, as CLIPA's, also pool in "
      "another way than the image encoders of CLIP that are read here"
    )
  if "ln_post.weight" not in flat:
    raise ValueError(
      "it has no norm after its blocks (ln_post.weight), as Meta's own files of the Perception "
      "Encoder, which do not tell their rotary positions; use timm's folder of the model, such as "
      "vit_pe_lang_large_patch14_448"
    )
  if lacking := _TABLE.lacking(flat, THEIRS):
    raise ValueError(f"{lacking[0]} is no part of the image encoders of CLIP that are read here")
  ours = _TABLE.ours(flat, heads or timm.heads_of_width(flat["class_embedding"].size))
  if "head/kernel" in ours:
    ours["head/bias"] = np.zeros(ours["head/kernel"].shape[-1], np.float32)
  return nest(ours)


def _card_of_file(path: pathlib.Path, params: dict, names: Iterable[str]) -> Card:
  """What OpenCLIP's models have in common; warns that nothing else is known about this one."""
  usual = card.guessed(
    params,
    share=1,
    model=Model(activation="gelu", norm_epsilon=EPSILON),
    projection="head" in params,
    resampling="torchvision_bicubic",
    position_resizing=POSITION_RESIZING,
  )
  _log.warning(
    "%s has OpenCLIP's names, and nothing says how its model computes. Taken as usual: exact GELU "
    "(OpenAI's models have another), and images as (pixel - 127.5) / 127.5; %s. If they are not, "
    "put OpenCLIP's %s beside it.",
    path,
    card.preparation_in_words(usual),
    CONFIG,
  )
  return usual


class _Settings(NamedTuple):
  """What a config of OpenCLIP says.

  Attributes:
    quick: whether the model has QuickGELU.
    vision: the settings of the encoder; of one of timm, those in `open_clip_timm`.
    images: how they are prepared.
    trunk: what timm's config.json would say of an encoder of timm; None: it is OpenCLIP's own.
  """

  quick: bool
  vision: dict
  images: dict
  trunk: open_clip_timm.Described | None


def _settings(path: pathlib.Path) -> _Settings:
  """The settings of a folder, or those beside a file.

  Raises:
    ValueError: it computes something else than models of this project.
  """
  path = _config_of(path)
  content = card.read_json(path)
  model = content.get("model_cfg")
  images = content.get("preprocess_cfg") or {}
  if not isinstance(model, dict) or not isinstance(images, dict):
    raise ValueError(f"{path} does not describe a model of OpenCLIP.")
  vision = model.get("vision_cfg")
  if not isinstance(vision, dict):
    raise ValueError(f"{path} does not describe an image encoder (vision_cfg).")
  card.check_known(vision, VISION.keys() | open_clip_timm.VISION.keys() | _OTHERS, path)
  quick = checked(model, {"quick_gelu": (one_of(True, False), False)}, path)["quick_gelu"]
  images = checked(images, IMAGES, path)
  trunk = checked(vision, open_clip_timm.VISION, path)
  if trunk[open_clip_timm.NAME]:
    return _Settings(quick, trunk, images, open_clip_timm.described(trunk, images, path))
  return _Settings(quick, checked(vision, VISION, path), images, None)


def _config_of(path: pathlib.Path) -> pathlib.Path:
  return (path if path.is_dir() else path.parent) / CONFIG


def _recognises(path: pathlib.Path) -> bool:
  """Whether a path is a folder of OpenCLIP, or a file in it that this project did not write."""
  if not _config_of(path).is_file():
    return False
  if path.is_dir():
    return True
  if path.suffix != SUFFIX or safetensors.has_card(path):
    return False
  library = safetensors.library_of(path)
  of_trunk = library == timm.NAMES.name and open_clip_timm.is_in(safetensors.names_in(path))
  return library == NAMES.name or of_trunk


def _weights(path: pathlib.Path) -> pathlib.Path:
  """The file with the arrays: the path itself, or the one in the folder."""
  if path.is_file():
    return path
  if not (path / WEIGHTS).is_file():
    raise ValueError(pickled.advice_in(path, WEIGHTS) or f"it has no {WEIGHTS}")
  return path / WEIGHTS


def _load(path: pathlib.Path) -> dict:
  settings = _settings(path)
  file = _weights(path)
  if settings.trunk:
    return open_clip_timm.loaded(file, settings.trunk)
  flat = safetensors.load_arrays(file)
  if not recognised(flat):
    raise ValueError(f"{file.name} holds no image encoder of CLIP")
  params = from_open_clip(flat, flat["class_embedding"].size // settings.vision["head_width"])
  return pixels.folded(params, settings.images["mean"], settings.images["std"])


def _card(path: pathlib.Path, params: dict | None) -> Card | None:
  quick, vision, images, trunk = _settings(path)
  if trunk and not params:
    return None  # nothing records what they were trained on
  if trunk:
    return open_clip_timm.card_of(_weights(path), params, trunk)
  side = vision["image_size"]
  squash = images["resize_mode"] == "squash"
  return Card(
    image_size=side,
    resize=0 if squash else side,
    resampling=f"torchvision_{images['interpolation']}",
    position_resizing=POSITION_RESIZING,
    model=Model(activation="quick_gelu" if quick else "gelu", norm_epsilon=EPSILON),
    projection="head" in (params or {}),
  )


NAMES = ArrayNames(
  name="OpenCLIP",
  recognised=recognised,
  load=lambda flat, heads, ours, size: from_open_clip(flat, heads.blocks),
  card=_card_of_file,
)
OPEN_CLIP = WeightFormat(
  words="a folder of OpenCLIP",
  recognises=_recognises,
  load=_load,
  card=_card,
  beside=(CONFIG,),
)
