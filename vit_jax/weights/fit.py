"""Fits loaded parameters to a model, and reports those that are resized, replaced or dropped."""

import collections
import dataclasses
import re

import numpy as np

from vit_jax.learning.objective import OBJECTIVE_PARAMS
from vit_jax.storage.tree import flatten, nest
from vit_jax.weights import positions
from vit_jax.weights.positions import Grids
from vit_jax.weights.resizing import PUBLISHED

KERNEL = "embedding/kernel"  # (P, P, channels, D)
RGB = 3
HEAD = re.compile(r"(head|pre_logits)/.*")
LAST = re.compile(r"head/.*")
NONE = "(?!)"  # matches no name
# What follows the blocks, of which a model has all arrays or none.
POOLING = ("MAPHead_0", "pooled_norm", "Transformer/encoder_norm")
NAMED = 5  # the most parameters that the message names


@dataclasses.dataclass(frozen=True)
class Row:
  """What happened to one parameter: "taken", "resized", "moved", "new" or "dropped"."""

  name: str
  what: str
  detail: str = ""


def fit(
  params: dict,
  wanted: dict,
  grid: tuple[int, int],
  *,
  old_grid: tuple[int, int] | None = None,
  new_head: bool = False,
  new_positions: bool = False,
  new_pooling: bool = False,
  keep_representation: bool = False,
  outputs: tuple[int, ...] | None = None,
  per_class: str = NONE,
  position_resizing: str = PUBLISHED,
) -> tuple[dict, list[Row]]:
  """Fits loaded parameters to a model.

  Position embeddings of another grid are resized. The head, with its representation layer, and the
  parameters under "objective" are new if their shapes do not match. A patch embedding of RGB images
  is changed for other channels (`for_channels`). All others must match.

  Args:
    params: the loaded tree, blocks unstacked.
    wanted: the model's tree, blocks unstacked, of arrays or shapes.
    grid: rows and columns of patches that the model sees.
    old_grid: those that the loaded position embeddings are for, if they have so many; otherwise,
      and with None, they are taken as those of a square.
    new_head: whether to make a new head even if the old one fits.
    new_positions: whether to make new position embeddings even if the old ones can be resized.
    new_pooling: whether attention pooling, and the norm of the tokens or of the pooled vector, are
      new if the weights have none, and dropped if the model has none.
    keep_representation: whether the representation layer stays under a new head.
    outputs: for each output of the model, its index in the kept head; None: the same.
    per_class: the regex of other parameters with an element for each output, which follow the head.
    position_resizing: the rule for position embeddings, see `resizing`.

  Returns:
    The tree, without the parameters that are new, and a row for each name.

  Raises:
    ValueError: parameters are missing, extra or of other shapes, or new position embeddings are
      asked for and the model has none.
  """
  stored = flatten(params)
  wanted = flatten(wanted)
  grids = Grids(grid, old_grid)
  head = LAST if keep_representation else HEAD
  head = re.compile(f"{head.pattern}|{per_class}")
  patterns = _renewed(stored, wanted, head, new_head=new_head, new_positions=new_positions)
  if new_pooling:
    patterns += _other_pooling(stored, wanted)

  def renewed(name: str) -> bool:
    return any(pattern.fullmatch(name) for pattern in patterns)

  kept = [name for name in wanted if not renewed(name)]
  misfits = [_misfit(name, stored.get(name), wanted[name], grids) for name in kept]
  surplus = {name: x for name, x in stored.items() if name not in wanted}
  extra = [f"{n} {x.shape} is not part of the model" for n, x in surplus.items() if not renewed(n)]
  _check([*filter(None, misfits), *extra])
  fitted = {}
  rows = []
  for name, target in wanted.items():
    array = stored.get(name)
    if renewed(name):
      rows.append(_new(name, array))
    elif array.shape == target.shape and positions.fit_as_they_are(params, name, target, grids):
      moved = outputs if re.fullmatch(f"{LAST.pattern}|{per_class}", name) else None
      fitted[name], row = _taken(name, array, moved)
      rows.append(row)
    elif name == KERNEL:
      fitted[name] = for_channels(array, target.shape[2])
      rows.append(Row(name, "resized", f"{RGB} -> {target.shape[2]} channels, as timm does"))
    else:
      fitted[name], detail = positions.resized(
        params, name, array, target, grids, position_resizing
      )
      rows.append(Row(name, "resized", detail))
  rows += [Row(name, "dropped", f"{x.shape}") for name, x in surplus.items()]
  return nest(fitted), rows


def _renewed(
  stored: dict, wanted: dict, head: re.Pattern, *, new_head: bool, new_positions: bool
) -> list[re.Pattern]:
  """The names of parameters that are new in the model, and dropped from the weights.

  Raises:
    ValueError: new position embeddings are asked for, and the model has none.
  """
  patterns = []
  if new_head or not _has_all(stored, wanted, "head/"):
    patterns.append(head)
  if not _has_all(stored, wanted, f"{OBJECTIVE_PARAMS}/"):
    patterns.append(re.compile(f"{OBJECTIVE_PARAMS}/.*"))
  if new_positions:
    patterns.append(positions.ALL)
    if not any(map(positions.ALL.fullmatch, wanted)):
      raise ValueError("the model has no position embeddings; leave config.new_positions out")
  return patterns


def _other_pooling(stored: dict, wanted: dict) -> list[re.Pattern]:
  """The names of what follows the blocks that the weights alone or the model alone have."""
  patterns = [re.compile(f"{prefix}/.*") for prefix in POOLING]
  return [
    one for one in patterns if any(map(one.fullmatch, stored)) != any(map(one.fullmatch, wanted))
  ]


def _misfit(name: str, array, target, grids: Grids) -> str:
  """Why an array, None if it is missing, cannot be used; "" if it fits or can be resized."""
  if array is None:
    return f"{name} {target.shape} is missing"
  if array.shape == target.shape or _has_other_channels(name, array, target):
    return ""
  if positions.can_resize(name, array, target, grids):
    return ""
  fixed = ""
  if name.endswith("pos_embedding_relative"):
    fixed = " (relative position embeddings of tokens are not resized)"
  return f"{name} is {array.shape} and must be {target.shape}{fixed}"


def _has_other_channels(name: str, array, target) -> bool:
  """Whether a kernel is for RGB patches, and the wanted one for the same of other channels."""
  rgb = *target.shape[:-2], RGB, target.shape[-1]
  return name == KERNEL and array.shape == rgb


def for_channels(kernel: np.ndarray, channels: int) -> np.ndarray:
  """A kernel of RGB patches (P, P, 3, D) for another number of channels.

  For one channel, the sum over the colours: of a grey image, the outputs stay the same. For others,
  the colours are repeated, and scaled by 3 / channels.

  Source: `adapt_input_conv` of timm; here of pixels from -1 to 1.
  """
  if channels == 1:
    return kernel.sum(axis=2, keepdims=True)
  return kernel[:, :, np.arange(channels) % RGB] * np.float32(RGB / channels)


def _has_all(stored: dict, wanted: dict, prefix: str) -> bool:
  """Whether the model has such arrays, and `stored` has each of them with the same shape."""
  expected = {name: x for name, x in wanted.items() if name.startswith(prefix)}
  return bool(expected) and all(
    name in stored and stored[name].shape == x.shape for name, x in expected.items()
  )


def _new(name: str, array) -> Row:
  """The row of a new parameter; `array` is the one in the weights, or None."""
  if array is None:
    return Row(name, "new")
  return Row(name, "new", f"in the file {array.shape}")


def _taken(name: str, array, outputs: tuple[int, ...] | None) -> tuple[np.ndarray, Row]:
  """An array that fits; `outputs` reorders those of the head."""
  if outputs is None:
    return array, Row(name, "taken")
  return array[..., outputs], Row(name, "moved", "by the names of classes")


def _check(wrong: list[str]):
  if wrong:
    more = ""
    if len(wrong) > NAMED:
      more = f"; and {len(wrong) - NAMED} more"
    raise ValueError(
      f"parameters that do not fit the model ({len(wrong)}): {'; '.join(wrong[:NAMED])}{more}"
    )


def table(rows: list[Row]) -> str:
  """The rows as text: the number of parameters that were taken, and a list of all others.

  What is dropped with a module of the objective, such as a decoder, is one line.
  """
  taken = sum(row.what == "taken" for row in rows)
  others = _summarised([row for row in rows if row.what != "taken"])
  width = max((len(row.name) for row in others), default=0)
  lines = [f"{taken} of {len(rows)} parameters taken as they are"]
  lines += [f"  {row.what:8} {row.name:{width}}  {row.detail}".rstrip() for row in others]
  return "\n".join(lines)


def _summarised(rows: list[Row]) -> list[Row]:
  """The rows, with one for each module of the objective of which more than NAMED are dropped."""
  modules = collections.defaultdict(list)
  for row in rows:
    module = "/".join(row.name.split("/")[:2])
    if row.what == "dropped" and row.name.startswith(f"{OBJECTIVE_PARAMS}/"):
      modules[module].append(row)
  large = {module: own for module, own in modules.items() if len(own) > NAMED}
  left = [row for row in rows if not any(row in own for own in large.values())]
  return left + [Row(f"{name}/*", "dropped", f"{len(own)} arrays") for name, own in large.items()]
