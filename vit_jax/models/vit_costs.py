"""The interface of ViTs, hybrids and axial ViTs for other packages, and the cost of layers.

See `vit_jax.models.family`; `Network.macs` adds the costs up.
"""

import math

import jax
import jax.numpy as jnp

from vit_jax.config.fields import Size, as_size, sides
from vit_jax.config.model import FIXED_POSITIONS
from vit_jax.models import vit_checks
from vit_jax.models.convolution import map_size, stride_of
from vit_jax.models.family import (
  AttentionGrid,
  Inspectable,
  Layered,
  Network,
)
from vit_jax.models.mlp import MATMULS
from vit_jax.models.positions import ADDED, PositionEmbedding
from vit_jax.models.recognition import patch_grid
from vit_jax.models.relative_bias import TABLE
from vit_jax.models.stem import NORMS


def by_part(params: dict) -> dict[str, int]:
  """{name of a subtree at the top: its number of parameters}, for arrays or their shapes."""

  def size(subtree) -> int:
    return sum(math.prod(x.shape) for x in jax.tree.leaves(subtree))

  return {name: size(subtree) for name, subtree in params.items()}


def attention_macs(tokens: int, width: int, *, relative: bool, keys: float = 1.0) -> int:
  """Multiply-adds of an attention.

  They are 2 (1 + `keys`) T D^2 for projections, with keys and values for this share of the heads;
  2 T^2 D for q k^T and the values; and T (2 T - 1) D for relative keys.
  """
  offsets = (2 * tokens - 1) * relative
  projections = round(2 * (1 + keys) * tokens * width**2)
  return projections + 2 * tokens**2 * width + tokens * offsets * width


def resnet_macs(
  stages: tuple[int, ...],
  width: int,
  heads: int,
  height: int,
  columns: int,
  *,
  deep: bool = False,
  channels: int = 3,
) -> tuple[int, int]:
  """The multiply-adds of root and stages, and the channels of the last stage's output.

  Args:
    stages: residual units of each stage.
    width: channels of the root.
    heads: not 0 if axial attention replaces the 3 x 3 convolutions.
    height, columns: of the image, pixels.
    deep: whether the root has three 3 x 3 convolutions for one of 7 x 7.
    channels: of the image.
  """
  macs = _taps(height, 7, 2) * _taps(columns, 7, 2) * channels * width
  if deep:
    half = width // 2
    macs = _taps(height, 3, 2) * _taps(columns, 3, 2) * channels * half
    places = _taps(_divided(height, 2), 3, 1) * _taps(_divided(columns, 2), 3, 1)
    macs += places * half * (half + width)
  h = _divided(_divided(height, 2), 2)  # by the root's convolution, then by its pooling
  w = _divided(_divided(columns, 2), 2)
  channels = width
  for stage, units in enumerate(stages):
    middle = width * 2**stage
    for unit in range(units):
      stride = 2 if unit == 0 and stage > 0 else 1
      macs += h * w * channels * middle
      if heads:
        macs += h * attention_macs(w, middle, relative=True)
        macs += w * attention_macs(h, middle, relative=True)
      else:
        macs += _taps(h, 3, stride) * _taps(w, 3, stride) * middle**2
      h = _divided(h, stride)
      w = _divided(w, stride)
      macs += h * w * middle * 4 * middle
      if unit == 0:
        macs += h * w * channels * 4 * middle  # the shortcut's projection
      channels = 4 * middle
  return macs, channels


def _divided(size: int, stride: int) -> int:
  """size / stride, rounded up."""
  return -(-size // stride)


def _taps(size: int, kernel: int, stride: int) -> int:
  """Products of a kernel along an axis, summed over its ceil(size / stride) places.

  Products with the `kernel // 2` zeros at each end do not count. "SAME" padding, which may have one
  zero less at one end, gives the same number.
  """
  starts = range(-(kernel // 2), size - kernel // 2, stride)
  return sum(min(start + kernel, size) - max(start, 0) for start in starts)


def training_flops(macs: int) -> int:
  """FLOPs of a training step for one image: 2 per multiply-add; backward costs twice forward."""
  return 6 * macs


class ViTCosts(Network, Layered, Inspectable):
  """The members of the three interfaces, except the stages of the network."""

  def check(self, name: str):
    """As `Network.check`."""
    vit_checks.check(self, name)

  def stride(self) -> Size:
    """Pixels from one patch to the next; of patches that are no squares, down and across."""
    if not self.stem_width:
      return self.patch
    return as_size([side * stride_of(self.stages) for side in sides(self.patch)])

  def grid(self, height: int, width: int) -> tuple[int, int]:
    """As `Network.grid`; the patch size must divide both sides of the image or the hybrid's map."""
    what = "Images"
    unit = "pixels"
    if self.stem_width:
      height = map_size(height, self.stages)
      width = map_size(width, self.stages)
      what = "Maps"
      unit = "positions"
    rows, columns = sides(self.patch)
    if height % rows or width % columns:
      raise ValueError(
        f"{what} of {height} x {width} {unit} cannot be cut into patches of {rows} x {columns}: "
        "the patch size must divide both sides."
      )
    return height // rows, width // columns

  def largest_side(self, most: int) -> int:
    """The largest multiple of the stride, down and across."""
    multiple = math.lcm(*sides(self.stride()))
    return most // multiple * multiple

  def size_of(self, params: dict) -> Size:
    """The size that position embeddings, or biases for offsets, are for; 0: they don't tell it."""
    grid = patch_grid(params, self.tokens_before())
    if self.positions == "relative_table":
      grid = (self.patches_of_biases(params),) * 2
    if not grid:
      return 0
    return as_size([n * side for n, side in zip(grid, sides(self.stride()), strict=True)])

  def patches_of_biases(self, params: dict) -> int:
    """Rows of a square grid of patches for which the biases of offsets are; 0: for no such grid."""
    encoder = params["Transformer"]
    node = encoder.get("relative_bias") or encoder["encoderblock_0"]["relative_bias"]
    offsets = len(node[TABLE]) - 3 * self.tokens_before()
    side = math.isqrt(offsets)
    return (side + 1) // 2 if side**2 == offsets else 0

  def feature_width(self) -> int:
    """As `Network.feature_width`."""
    if self.pool == "distilled":
      return 2 * self.width
    if self.representation_layer:
      return self.width
    return self.neck_dim or self.width

  def macs(self, height: int, width: int) -> int:
    """The sum of `encoder_macs`, attention pooling, the representation layer and the head."""
    patches = math.prod(self.grid(height, width))
    pooling = 0
    if self.pool.startswith("map"):
      # One query: the projections of query and output; those of keys and values, with the two
      # matmuls of attention; and the MLP.
      pooled = patches if self.pool == "map" else patches + self.tokens_before()
      pooling = 2 * self.width**2 + 2 * pooled * (self.width**2 + self.width)
      pooling += 2 * self.width * (self.pool_mlp_dim or self.mlp_dim)
    head = self.feature_width() * self.num_classes
    if self.representation_layer:
      head += (self.neck_dim or self.width) * self.width
    return self.encoder_macs(height, width) + pooling + head

  def encoder_macs(self, height: int, width: int, patches: int | None = None) -> int:
    """Multiply-adds up to the output of the encoder, with all or so many patches in the blocks.

    They are the sum of the stem, the patch embedding, N P^2 C D with C the channels of the image
    or of the stem's map, and the blocks. The MLP of positions="relative_mlp" is computed once for a
    batch, and is left out.
    """
    stem = 0
    channels = self.channels
    if self.stem_width:
      stem, channels = resnet_macs(
        self.stages, self.stem_width, 0, height, width, channels=channels
      )
    rows, columns = self.grid(height, width)

    if patches is None:
      patches = rows * columns
    if self.axial:
      lines = ((rows, columns), (columns, rows))
    else:
      lines = ((1, self.tokens_before() + patches),)
    blocks = sum(
      count * self.block_macs(i, tokens) for i in range(self.depth) for count, tokens in lines
    )
    blocks += self._windows_and_neck(rows, columns)
    embedding = rows * columns * math.prod(sides(self.patch)) * channels * self.width
    return stem + embedding + blocks

  def _windows_and_neck(self, rows: int, columns: int) -> int:
    """What attention in windows, relative axes and a neck add to blocks over the whole image."""
    tokens = rows * columns
    neck = self.width * self.neck_dim * tokens
    neck += self.neck_dim**2 * _taps(rows, 3, 1) * _taps(columns, 3, 1)
    macs = 0
    for i in range(self.depth):
      places = (1, rows, columns)
      if self.window and i not in self.global_blocks:
        count = _divided(rows, self.window) * _divided(columns, self.window)
        places = (count, self.window, self.window)
      count, down, right = places
      patches = down * right
      added = count * self._attention_macs(i, patches) - self._attention_macs(i, tokens)
      added += count * patches * (down + right) * self.width * self.relative_axes
      macs += self.parallel_branches * added
    return macs + neck

  def _attention_macs(self, i: int, tokens: int) -> int:
    """Multiply-adds of an attention of block i, without relative axes."""
    ends = self.kv_heads_from
    fewer = self.kv_heads and ends <= i < (self.whole_depth or self.depth) - ends
    return attention_macs(
      tokens,
      self.width,
      relative=self.positions == "relative",
      keys=self.kv_heads / self.heads if fewer else 1,
    )

  def block_macs(self, i: int, tokens: int) -> int:
    """Multiply-adds of block i: its attentions, and for each MLP 2 T D M, or 3 if it is gated."""
    mlp = MATMULS[self.mlp] * tokens * self.width * self.mlp_dim
    return self.parallel_branches * (self._attention_macs(i, tokens) + mlp)

  def why_not_masked(self) -> str:
    """Names a layer that would stay untrained, or patches that are no squares."""
    if isinstance(self.patch, tuple):
      return "its patches are no squares; give a ViT, such as --config.model.name=ViT-B/16."
    if self.neck != "none":
      return "its patches are those of its neck; give a ViT, such as --config.model.name=ViT-B/16."
    if self.pool.startswith("map"):
      pool = "class_token" if "cls" in self.learned_tokens() else "gap"
      return f"it would not train the attention pooling; use --config.model.pool={pool}."
    if self.representation_layer:
      return (
        "it would not train the representation layer; use "
        "--config.model.representation_layer=False."
      )
    if self.final_norm == "pooled":
      return "it would not train the norm behind the pooling; use --config.model.final_norm=tokens."
    return ""

  def why_not_in_part(self) -> str:
    """Names what needs the whole grid of patches in the blocks, if anything does."""
    if reason := self.why_not_masked():
      return reason
    if self.stem_width:
      return "a patch of its ResNet shows its neighbours too; give a ViT without one."
    if self.axial or self.window:
      return "its attention is along the lines of a grid, or within windows; give another ViT."
    plain = self.positions in (*ADDED, "none") and self.position_place == "stem"
    if not plain or self.relative_axes or self.rotary != "none":
      return (
        "its blocks compute with the places of patches; use --config.model.positions=sincos2d_mae, "
        "--config.model.position_place=stem and --config.model.rotary=none."
      )
    return ""

  def why_no_layers(self) -> str:
    """As `Network.why_no_layers`."""
    if self.neck != "none":
      return "its patches are those of its neck"
    return ""

  def pooled_as(self, other: Network) -> Network:
    """As `Network.pooled_as`."""
    if type(self) is not type(other) or [*self.learned_tokens()] != [*other.learned_tokens()]:
      return self
    fields = ("pool", "pool_heads", "pool_mlp_dim", "final_norm")
    return self.clone(**{key: getattr(other, key) for key in fields})

  def first(self, blocks: int) -> "ViTCosts":
    """As `Layered.first`."""
    return self.clone(depth=blocks, whole_depth=self.depth)

  def has_class_token(self) -> bool:
    """As `Layered.has_class_token`."""
    # A norm of the pooled vector is no norm of the token beside it, as in BEiT.
    return "cls" in self.learned_tokens() and self.final_norm != "pooled"

  def why_opaque(self) -> str:
    """As `Network.why_opaque`."""
    if self.window:
      return "its attention is within windows, which makes no map over the image."
    if self.channels != 3:
      return f"its images have {self.channels} channels, and pictures show those of RGB images."
    if self.differential:
      return "the maps of differential attention are differences, which are no shares of a whole."
    if self.parallel_branches > 1:
      return "its blocks have several attentions side by side, which make no map of a layer."
    if self.depth:
      return ""
    return "these weights have no blocks, so there is no attention to look at."

  def why_no_map(self) -> str:
    """As `Network.why_no_map`."""
    if not self.axial:
      return ""
    return (
      "an axial model attends only within rows and within columns, which makes no map over the "
      "image; the attention distance can be shown for it."
    )

  def read_tokens(self) -> slice:
    """As `Inspectable.read_tokens`."""
    counts = {"class_token": 1, "distilled": 2}
    if self.pool in counts:
      return slice(counts[self.pool])
    return slice(self.tokens_before(), None)

  def attention_grids(self, grid: tuple[int, int]) -> tuple[AttentionGrid, ...]:
    """In axial models, along rows, then along columns."""
    if not self.axial:
      return (AttentionGrid(grid),)
    rows, columns = grid
    return (
      AttentionGrid((1, columns), rows, " rows"),
      AttentionGrid((rows, 1), columns, " columns"),
    )

  def attentions(self, tree: dict) -> list[dict]:
    """As `Inspectable.attentions`."""
    blocks = [tree["Transformer"][f"encoderblock_{i}"] for i in range(self.depth)]
    if self.axial:
      blocks = [block[axis] for block in blocks for axis in ("row", "column")]
    return [block["MultiHeadDotProductAttention_1"] for block in blocks]

  def pooling(self, tree: dict) -> dict | None:
    """As `Inspectable.pooling`."""
    return tree.get("MAPHead_0", {}).get("MultiHeadDotProductAttention_0")

  def filters(self, params: dict) -> jax.Array:
    """The patch embedding; in hybrids the root of the ResNet, standardised as it is applied."""
    if not self.stem_width:
      return params["embedding"]["kernel"]
    return NORMS[self.stem_norms].standardize(jnp.asarray(params["conv_root"]["kernel"]))

  def filters_in_words(self) -> str:
    """As `Inspectable.filters_in_words`."""
    return "the ResNet's root" if self.stem_width else "the patch embedding"

  def position_tables(self, params: dict, grid: tuple[int, int]) -> dict[str, jax.Array]:
    """The places are "stem", "shared", or "layer 0" and so on."""
    if self.positions not in ADDED:
      return {}
    encoder = params["Transformer"]
    if self.positions in FIXED_POSITIONS:
      nodes = {"stem": {}}
    elif self.position_place == "stem":
      nodes = {"stem": encoder["posembed_input"]}
    elif self.position_place == "every_layer_shared":
      nodes = {"shared": encoder["posembed_shared"]}
    else:
      blocks = {f"layer {i}": encoder[f"encoderblock_{i}"] for i in range(self.depth)}
      nodes = {place: block["posembed_input"] for place, block in blocks.items()}
    table = PositionEmbedding(self.positions, grid, self.tokens_before(), self.width)
    return {place: self.patches(table.apply({"params": node}))[0] for place, node in nodes.items()}
