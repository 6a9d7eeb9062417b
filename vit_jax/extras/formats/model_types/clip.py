"""The image encoder of CLIP in Transformers (Radford et al., 2021), without its text encoder.

The projection to the space that both encoders share is the head, without a bias. The library's
patch embedding has no bias: on reading it gets one if the pixels have another mean than here, and
writing adds it to the position embeddings of the patches, which is the same sum.
"""

import dataclasses

import numpy as np

from vit_jax.extras.formats.model_type import ModelType, rules
from vit_jax.extras.formats.model_types.blocks import OF_CLIP, block, sizes
from vit_jax.weights.card import one_of
from vit_jax.weights.published import POSITIONS
from vit_jax.weights.translation import CONVOLUTION, DENSE, TABLE, TOKEN, Table, norm

_BIAS = "embedding/bias"
_HEAD_BIAS = "head/bias"
PLAIN = "CLIPVisionModel"
HEADED = "CLIPVisionModelWithProjection"
WITH_TEXT = "CLIPModel"
NAMES = Table(
  ("cls", "embeddings.class_embedding", TOKEN),
  (POSITIONS, "embeddings.position_embedding.weight", TABLE),
  ("embedding/kernel", "embeddings.patch_embedding.weight", CONVOLUTION),
  *norm("Transformer/first_norm", "pre_layrnorm"),  # spelt so in the library
  *block("encoder.layers.{0}", **OF_CLIP),
  *norm("Transformer/encoder_norm", "post_layernorm"),
)
_SIZES = dict(
  hidden_act="quick_gelu",
  layer_norm_eps=1e-5,
  hidden_size=768,
  num_hidden_layers=12,
  intermediate_size=3072,
  patch_size=32,
)


def _here(flat: dict, settings: dict) -> dict:
  """The arrays, with a bias of zeros for the projection if there is one."""
  if "head/kernel" not in flat:
    return flat
  return flat | {_HEAD_BIAS: np.zeros(flat["head/kernel"].shape[-1], np.float32)}


def _there(flat: dict) -> dict:
  """The arrays without biases of the projection and of the patch embedding.

  Raises:
    ValueError: the projection's bias is not zero.
  """
  if np.any(flat.get(_HEAD_BIAS, 0)):
    raise ValueError("a bias of the head")
  kept = {name: x for name, x in flat.items() if name not in (_HEAD_BIAS, _BIAS)}
  if _BIAS in flat:
    table = np.array(flat[POSITIONS])
    table[:, 1:] += flat[_BIAS]
    kept[POSITIONS] = table
  return kept


CLIP_VISION = ModelType(
  plain=PLAIN,
  headed=HEADED,
  names=NAMES,
  heads=Table(("head/kernel", "visual_projection.weight", DENSE)),
  prefix="vision_model.",
  plain_prefix="vision_model.",
  computed=rules(PLAIN, HEADED, kinds=("clip_vision_model",), **_SIZES),
  sizes=sizes,
  written_with=lambda module: {"projection_dim": module.num_classes},
  fields={"first_norm": one_of("tokens"), "patch_bias": one_of(True, False)},
  position_resizing="bicubic",
  processor="CLIP",
  left_out=r".*\.position_ids",
  here=_here,
  there=_there,
  projection=True,
)
CLIP = dataclasses.replace(
  CLIP_VISION,
  plain=WITH_TEXT,
  headed=WITH_TEXT,
  part="vision_config",
  computed=rules(WITH_TEXT, kinds=("clip",), **_SIZES),
  left_out=r"text_(model|projection)\..*|logit_scale|.*\.position_ids",
  written=False,
)
