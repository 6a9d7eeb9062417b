"""Fits loaded parameters to a model, and reports those that are resized, replaced or dropped.

Position embeddings are resized to another grid of patches by the rule of the weights' library:

- "bilinear_aligned": the published code of the paper (Section 3.2), and big_vision: bilinear, with
  the corners of both grids at the same places.
- "bicubic": Transformers' ViT, MAE and DINOv2: `torch.nn.functional.interpolate(mode="bicubic",
  align_corners=False)`, which has a = -0.75 and repeats the border.
- "bicubic_antialiased": timm, and DINOv2 with registers: the same with `antialias=True`, which has
  a = -0.5 and a wider kernel where the grid becomes smaller.
- "bicubic_offset": DINOv2's own code without registers: "bicubic", with the places of a grid that
  is a tenth of a patch larger.

Embeddings and biases of offsets are resized linearly, as in SAM and in Transformers' BEiT; with
aligned corners for "bilinear_aligned". BEiT's biases, for "bicubic_antialiased", as in timm: see
`geometric_weights`.

Fixed position embeddings in files: other libraries read a table, this project computes it.

A file holds the table, so that a reader of the arrays alone computes the same; the card says that
the table is fixed.
"""

import collections
import dataclasses
import math
import re
from collections.abc import Callable

import numpy as np
import scipy.ndimage

from vit_jax.config import POSITION_RESIZING, sides
from vit_jax.config.model import FIXED_POSITIONS
from vit_jax.learning.objective import OBJECTIVE_PARAMS
from vit_jax.models.recognition import module_of, patch_grid
from vit_jax.storage.tree import flatten, nest
from vit_jax.weights.card import Card

KERNEL = "embedding/kernel"  # (P, P, channels, D)
RGB = 3
PUBLISHED = POSITION_RESIZING[0]
OFFSET = 0.1  # patches


def resize_table(
  table: np.ndarray, old: tuple[int, int], new: tuple[int, int], *, before: int, rule: str
) -> np.ndarray:
  """Interpolates 1-D position embeddings over the places of their patches in the image.

  Entries before the patches stay unchanged.

  Args:
    table: (1, before + N, D); N = rows * columns of `old`.
    old, new: rows and columns of patches.
    before: number of entries for tokens before the patches, such as the class token.
    rule: one of those above.

  Returns:
    (1, before + M, D), in the dtype of `table`.
  """
  tokens = table[:, :before]
  grid = table[0, before:].reshape(*old, -1)
  if rule == PUBLISHED:
    grid = _zoom(grid, (*new, table.shape[-1]))
  else:
    rows, columns = (resizing_matrix(o, n, rule) for o, n in zip(old, new, strict=True))
    grid = np.einsum("ro,cp,opd->rcd", rows, columns, grid, optimize=True).astype(table.dtype)
  return np.concatenate([tokens, grid.reshape(1, new[0] * new[1], -1)], axis=1)


def resize_axis(table: np.ndarray, new: int, rule: str) -> np.ndarray:
  """The same along one axis, for 2-D position embeddings: (rows or columns, D/2)."""
  if rule == PUBLISHED:
    return _zoom(table, (new, table.shape[-1]))
  return (resizing_matrix(len(table), new, rule) @ table).astype(table.dtype)


def resize_biases(
  table: np.ndarray, old: tuple[int, int], new: tuple[int, int], rule: str
) -> np.ndarray:
  """Interpolates biases of offsets in rows and columns; those of a class token, last, stay.

  Args:
    table: (offsets + extra, heads); offsets = (2 rows - 1) (2 columns - 1) of `old`.
    old, new: rows and columns of patches.
    rule: one of those above.

  Returns:
    (new offsets + extra, heads), in the dtype of `table`.
  """
  before, after = _offsets(old), _offsets(new)
  count = math.prod(before)
  if rule == "bicubic_antialiased":
    rows, columns = (geometric_weights(o, n) for o, n in zip(before, after, strict=True))
  else:
    rows, columns = (linear_weights(o, n, rule) for o, n in zip(before, after, strict=True))
  grid = table[:count].reshape(*before, -1)
  grid = np.einsum("ro,cp,oph->rch", rows, columns, grid, optimize=True).astype(table.dtype)
  return np.concatenate([grid.reshape(-1, table.shape[-1]), table[count:]])


def resize_offsets(table: np.ndarray, new: int, rule: str) -> np.ndarray:
  """Interpolates embeddings of the offsets along an axis, (old, D_h) -> (new, D_h)."""
  return (linear_weights(len(table), new, rule) @ table).astype(table.dtype)


def _zoom(array, shape):
  factors = [n / o for n, o in zip(shape, array.shape, strict=True)]
  # "nearest", because rounding may place the last entry slightly outside the table.
  zoomed = scipy.ndimage.zoom(array.astype(np.float64), factors, order=1, mode="nearest")
  return zoomed.astype(array.dtype)


def resizing_matrix(old: int, new: int, rule: str) -> np.ndarray:
  """The weight of each old place in each new one, (new, old) float64; every row adds up to 1."""
  scale = old / (new + OFFSET * (rule == "bicubic_offset"))
  centres = (np.arange(new) + 0.5) * scale - 0.5
  if rule == "bicubic_antialiased":
    distances = (np.arange(old) - centres[:, None]) / max(scale, 1)
    weights = _cubic(distances, -0.5)
    return weights / weights.sum(axis=1, keepdims=True)
  result = np.zeros((new, old))
  first = np.floor(centres).astype(int)
  for place in (first - 1, first, first + 1, first + 2):
    np.add.at(result, (np.arange(new), place.clip(0, old - 1)), _cubic(centres - place, -0.75))
  return result


def _cubic(x: np.ndarray, a: float) -> np.ndarray:
  """The kernel of cubic convolution.

  Source: Keys, "Cubic convolution interpolation for digital image processing", 1981, with a free.
  """
  x = np.abs(x)
  near = ((a + 2) * x - (a + 3)) * x**2 + 1
  far = a * (((x - 5) * x + 8) * x - 4)
  return np.where(x <= 1, near, np.where(x < 2, far, 0))


def linear_weights(old: int, new: int, rule: str) -> np.ndarray:
  """The weight of each of `old` offsets in each of `new`, (new, old): linear interpolation.

  Args:
    old, new: numbers of offsets along an axis, 2 n - 1 for n patches.
    rule: with "bilinear_aligned" the farthest offsets stay the farthest; otherwise as in
      `torch.nn.functional.interpolate(align_corners=False)`.
  """
  scale = old / new
  if rule == PUBLISHED:
    scale = (old - 1) / max(new - 1, 1)
  wanted = (np.arange(new) - new // 2) * scale
  return _between(np.arange(old) - old // 2, wanted)


def geometric_weights(old: int, new: int) -> np.ndarray:
  """As `linear_weights`, where near offsets stay and far ones move: 1, 1 + q, 1 + q + q^2, ...

  With this q, from 1.01 to 1.5, the farthest old offset becomes the farthest new one.

  Source: BEiT's code for fine-tuning, and `resize_rel_pos_bias_table` of timm, which is linear
  between these places where BEiT's code is cubic.
  """
  count, farthest = old // 2, new // 2
  distances = np.cumsum(_growth(count, farthest) ** np.arange(count))
  places = np.concatenate([-distances[::-1], [0], distances])
  return _between(places, np.arange(-farthest, farthest + 1))


def _growth(count: int, farthest: int) -> float:
  """The q, as exact as in these sources, with which `count` terms add up to `farthest`."""
  low, high = 1.01, 1.5
  while high - low > 1e-6:
    q = (low + high) / 2
    if np.sum(q ** np.arange(count)) > farthest:
      high = q
    else:
      low = q
  return q


def _between(places: np.ndarray, wanted: np.ndarray) -> np.ndarray:
  """The weight of each place in each wanted one; those outside get the value at the border."""
  return np.stack([np.interp(wanted, places, one) for one in np.eye(len(places))], axis=1)


HEAD = re.compile(r"(head|pre_logits)/.*")
LAST = re.compile(r"head/.*")
RELATIVE = "pos_embedding_relative"
BIASES = re.compile(r".*/pos_embedding_bias")
OFFSETS = re.compile(r".*/pos_embedding_(rows|columns)")
POSITIONS = re.compile(r".*\bpos_embedding(_row|_column|_relative|_bias|_rows|_columns)?")
NAMED = 5  # the most parameters that the message names
TABLE = re.compile(
  r"(.*posembed_(?:input|shared)/)(pos_embedding|pos_embedding_row|pos_embedding_column)"
)


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
  keep_representation: bool = False,
  outputs: tuple[int, ...] | None = None,
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
    keep_representation: whether the representation layer stays under a new head.
    outputs: for each output of the model, its index in the kept head; None: the same.
    position_resizing: the rule for position embeddings, one of those above.

  Returns:
    The tree, without the parameters that are new, and a row for each name.

  Raises:
    ValueError: parameters are missing, extra or of other shapes, or new position embeddings are
      asked for and the model has none.
  """
  stored = flatten(params)
  wanted = flatten(wanted)
  grids = (old_grid, grid)
  head = LAST if keep_representation else HEAD
  renewed = _renewed(stored, wanted, head, new_head=new_head, new_positions=new_positions)
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
    elif array.shape == target.shape and _is_for(params, name, target, grids):
      fitted[name], row = _taken(name, array, outputs)
      rows.append(row)
    elif name == KERNEL:
      fitted[name] = for_channels(array, target.shape[2])
      rows.append(Row(name, "resized", f"{RGB} -> {target.shape[2]} channels, as timm does"))
    else:
      fitted[name], detail = _resized(params, name, array, target, grids, position_resizing)
      rows.append(Row(name, "resized", detail))
  rows += [Row(name, "dropped", f"{x.shape}") for name, x in surplus.items()]
  return nest(fitted), rows


def _renewed(
  stored: dict, wanted: dict, head: re.Pattern, *, new_head: bool, new_positions: bool
) -> Callable[[str], bool]:
  """A function (name) -> whether this parameter is new in the model, and dropped from the weights.

  Raises:
    ValueError: new position embeddings are asked for, and the model has none.
  """
  patterns = []
  if new_head or not _has_all(stored, wanted, "head/"):
    patterns.append(head)
  if not _has_all(stored, wanted, f"{OBJECTIVE_PARAMS}/"):
    patterns.append(re.compile(f"{OBJECTIVE_PARAMS}/.*"))
  if new_positions:
    patterns.append(POSITIONS)
    if not any(map(POSITIONS.fullmatch, wanted)):
      raise ValueError("the model has no position embeddings; leave config.new_positions out")
  return lambda name: any(pattern.fullmatch(name) for pattern in patterns)


def _misfit(name: str, array, target, grids) -> str:
  """Why an array, None if it is missing, cannot be used; "" if it fits or can be resized."""
  if array is None:
    return f"{name} {target.shape} is missing"
  if array.shape == target.shape or _has_other_channels(name, array, target):
    return ""
  if TABLE.fullmatch(name) and _without_places(array.shape) == _without_places(target.shape):
    return ""
  if _has_other_offsets(name, array, target, grids):
    return ""
  fixed = ""
  if name.endswith(RELATIVE):
    fixed = " (relative position embeddings of tokens are not resized)"
  return f"{name} is {array.shape} and must be {target.shape}{fixed}"


def _has_other_offsets(name: str, array, target, grids) -> bool:
  """Whether an array is for the offsets in a known grid that is not the wanted one."""
  if array.shape[1:] != target.shape[1:]:
    return False
  if OFFSETS.fullmatch(name):
    return len(array) % 2 == 1
  return bool(BIASES.fullmatch(name) and _grid_of_biases(array, target, grids))


def _grid_of_biases(array, target, grids) -> tuple[int, int] | None:
  """Rows and columns that biases are for: the likely grid or a square; None if neither fits."""
  likely, grid = grids
  beside = len(target) - math.prod(_offsets(grid))  # biases for a class token
  offsets = len(array) - beside
  side = (math.isqrt(max(offsets, 0)) + 1) // 2
  known = [old for old in (likely, (side, side)) if old and math.prod(_offsets(old)) == offsets]
  return next(iter(known), None)


def _offsets(grid: tuple[int, int]) -> tuple[int, int]:
  """The number of offsets between rows, and between columns, of a grid."""
  rows, columns = grid
  return 2 * rows - 1, 2 * columns - 1


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


def _without_places(shape: tuple[int, ...]) -> tuple:
  """The shape of a table of position embeddings without the axis of the places."""
  return *shape[:-2], shape[-1:]


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
  """An array that fits; `outputs` reorders the arrays of the head."""
  if outputs is None or not name.startswith("head/"):
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


def _is_for(params, name, target, grids) -> bool:
  """Whether position embeddings of the right number are also for the right rows and columns."""
  likely, grid = grids
  if BIASES.fullmatch(name):
    return _grid_of_biases(target, target, grids) in (None, grid)
  if not TABLE.fullmatch(name) or not name.endswith("/pos_embedding"):
    return True
  return patch_grid(params, target.shape[1] - math.prod(grid), likely) in (None, grid)


def _resized(params, name, array, target, grids, rule):
  """Position embeddings resized to the shape of `target`, and a description of the change."""
  likely, grid = grids
  rows, columns = grid
  if OFFSETS.fullmatch(name):
    resized = resize_offsets(array, len(target), rule)
    return resized, f"{len(array)} -> {len(target)} offsets"
  if BIASES.fullmatch(name):
    old = _grid_of_biases(array, target, grids)
    resized = resize_biases(array, old, grid, rule)
    return resized, f"{old[0]} x {old[1]} -> {rows} x {columns} patches"
  if name.endswith("pos_embedding"):
    before = target.shape[1] - rows * columns
    old = patch_grid(params, before, likely)
    if not old:
      raise ValueError(
        f"there are position embeddings for {array.shape[1] - before} patches, which is no square; "
        "give the size of the images that they are for"
      )
    resized = resize_table(array, old, grid, before=before, rule=rule)
  else:
    old = patch_grid(params, 0)
    size = rows if name.endswith("row") else columns
    resized = resize_axis(array, size, rule)
  return resized, f"{old[0]} x {old[1]} -> {rows} x {columns} patches"


_MODULE = "posembed_input"
_TABLE = "pos_embedding"


def with_fixed_positions(params: dict, card: Card) -> dict:
  """The parameters with the table of fixed position embeddings, if the card's model has them.

  Raises:
    ValueError: the size of the images is not known.
  """
  positions = card.model.positions
  if positions not in FIXED_POSITIONS:
    return params
  if not card.image_size:
    raise ValueError("its fixed position embeddings need the size of its images; give it")
  module = module_of(params, card.model)
  grid = module.grid(*sides(card.image_size))
  table = np.asarray(module.position_tables({"Transformer": {}}, grid)["stem"])
  table = np.pad(table, ((module.tokens_before(), 0), (0, 0)))[None]
  encoder = params["Transformer"] | {_MODULE: {_TABLE: table}}
  return params | {"Transformer": encoder}


def without_table(params: dict, card: Card | None) -> dict:
  """The parameters without the table, if the card says that it is fixed.

  Raises:
    ValueError: the table is another one.
  """
  if not card or card.model.positions not in FIXED_POSITIONS:
    return params
  if _MODULE not in params.get("Transformer", {}):
    return params
  encoder = {name: x for name, x in params["Transformer"].items() if name != _MODULE}
  bare = params | {"Transformer": encoder}
  computed = _table_in(with_fixed_positions(bare, card))
  stored = _table_in(params)
  if computed.shape != stored.shape or not np.allclose(computed, stored, atol=1e-5):
    raise ValueError(
      f"its card says positions={card.model.positions!r}, and it holds other position embeddings"
    )
  return bare


def _table_in(params: dict) -> np.ndarray:
  return np.asarray(params["Transformer"][_MODULE][_TABLE])
