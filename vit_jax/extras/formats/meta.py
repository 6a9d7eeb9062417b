"""The names in Meta's own files of DINOv3 and of DINOv2 with gated MLPs, as timm's."""

import re

import numpy as np

from vit_jax.models.rotary import CONVENTIONS

Arrays = dict[str, np.ndarray]
_RENAMED = tuple(
  (re.compile(pattern), name)
  for pattern, name in (
    (r"storage_tokens", "reg_token"),
    (r"(.*\.mlp)\.w12\.(.*)", r"\1.fc1.\2"),  # the gate and the values in one layer
    (r"(.*\.mlp)\.w1\.(.*)", r"\1.fc1_g.\2"),
    (r"(.*\.mlp)\.w2\.(.*)", r"\1.fc1_x.\2"),
    (r"(.*\.mlp)\.w3\.(.*)", r"\1.fc2.\2"),
  )
)
_PERIODS = "rope_embed.periods"  # of rotary positions, which this project computes
_ROUNDING = 0.015  # bfloat16 rounds a period's exponent and its power, which is up to 1.2%
# The norm of small crops in training, and masks of biases, which `_biases` applies.
_LEFT_OUT = re.compile(rf"{re.escape(_PERIODS)}|local_cls_norm\..*|.*\.bias_mask")
_QKV = re.compile(r"(.*\.attn)\.qkv\.bias")


def as_timm(flat: Arrays) -> Arrays:
  """The arrays under timm's names; those of other files stay as they are.

  Raises:
    ValueError: its rotary positions are not those that this project computes.
  """
  _check_periods(flat)
  renamed = {}
  for name, array in flat.items():
    if _LEFT_OUT.fullmatch(name):
      continue
    for pattern, usual in _RENAMED:
      name = pattern.sub(usual, name) if pattern.fullmatch(name) else name
    renamed |= _biases(name, array, flat)
  return renamed


def _check_periods(flat: Arrays):
  """Checks the periods of rotary positions, of which there is one for four channels of a head.

  Raises:
    ValueError: they are other ones than this project computes, also if they were rounded.
  """
  periods = np.ravel(flat.get(_PERIODS, []))
  base = CONVENTIONS["dinov3"].base
  usual = base ** (np.arange(periods.size) / max(periods.size, 1))
  if not np.allclose(periods, usual, rtol=_ROUNDING, atol=0):
    raise ValueError(
      f"the periods of its rotary positions ({_PERIODS}) are not {base}^(4k/Dh), the only ones "
      "that models of this project compute"
    )


def _biases(name: str, array: np.ndarray, flat: Arrays) -> Arrays:
  """An array; of the biases of queries, keys and values, those that a mask of the file keeps."""
  match = _QKV.fullmatch(name)
  if not match or f"{name}_mask" not in flat:
    return {name: array}
  query, key, value = np.split(array * flat[f"{name}_mask"], 3)
  if key.any():
    return {name: array}
  return {f"{match[1]}.q_bias": query, f"{match[1]}.v_bias": value}


def heads_of(flat: Arrays) -> int:
  """The attention heads that rotary positions tell, which have a period for four channels of one.

  0: the file is not of DINOv3.
  """
  if _PERIODS not in flat:
    return 0
  return flat["cls_token"].size // (4 * flat[_PERIODS].size)


def known(names) -> dict:
  """Fields of `config.Model` that arrays of these names do not show, as their authors have them."""
  if _PERIODS in names:
    return {"rotary": "dinov3", "norm_epsilon": 1e-5}
  return {}
