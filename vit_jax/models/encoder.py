"""The encoder of the Vision Transformer (equations 2 to 4): blocks, positions, final LayerNorm.

A block is x + branch(x). With LayerScale and stochastic depth, which the paper has not, it is
x + b / (1 - p) s branch(x). Position embeddings are added to the tokens at the stem or at layers
(Appendix D.4, Table 8); relative ones change the attention weights instead (attention.py).
"""

import dataclasses
import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from vit_jax.models import windows
from vit_jax.models.attention import Attention, fitting, padded
from vit_jax.models.branches import Branches
from vit_jax.models.layers import EPSILON, Dropout, batch_first, remat, split_by_example
from vit_jax.models.mlp import MlpBlock
from vit_jax.models.parts import NO_TABLES, Parts, Tables
from vit_jax.models.positions import ADDED, PositionEmbedding, add_positions
from vit_jax.models.relative_bias import KINDS as RELATIVE_BIASES
from vit_jax.models.relative_bias import RelativeBias
from vit_jax.models.rotary import CONVENTIONS, turns


class EncoderBlock(nn.Module):
  """One pre-norm block: z' = MSA(LN(z)) + z, then MLP(LN(z')) + z' (equations 2 and 3).

  Attributes:
    mlp_dim, heads, dropout, dtype, attention, activation, norm_epsilon, qk_norm: as in
      vit_jax.models.vit.ViT.
    relative: relative position embeddings.
    position: fields of this block's own `PositionEmbedding`, or None.
    count: as in `Attention`.
    branches: LayerScale and stochastic depth, which the paper does not have.
    parts: what else differs from the paper's blocks.
    relative_bias: fields of this block's own `RelativeBias`, or None.
    grid, before: rows and columns of patches, and tokens before them.
  """

  mlp_dim: int
  heads: int
  dropout: float
  dtype: jnp.dtype
  attention: str
  activation: str = "gelu_tanh"
  norm_epsilon: float = EPSILON
  relative: bool = False
  position: dict | None = None
  count: int | None = None
  qk_norm: bool = False
  branches: Branches = Branches()
  parts: Parts = Parts()
  relative_bias: dict | None = None
  grid: tuple[int, int] = (0, 0)
  before: int = 0

  @nn.compact
  def __call__(
    self,
    x: jax.Array,
    shared: jax.Array | None,
    train: bool,
    rate=None,
    start=None,
    tables: Tables = NO_TABLES,
  ):
    """(B, N, D) and position embeddings shared by all blocks -> (B, N, D) and None.

    `rate` is this block's rate of stochastic depth, and `start` its first lambda of differential
    attention. `nn.scan` requires a pair as the result.
    """
    x = add_positions(split_by_example(x), shared, self.position)
    if self.relative_bias is not None:
      bias = RelativeBias(**self.relative_bias, name="relative_bias")()
      tables = dataclasses.replace(tables, bias=bias)

    def attend(y, suffix):
      if side := self.parts.window:
        within = self._attention(suffix, grid=(side, side), count=None)
        y = windows.joined(within(windows.divided(y, self.grid, side)), self.grid, side)
      else:
        attention = self._attention(suffix, grid=self.grid, count=self.count)
        y = attention(y, tables=tables, start=start)
      return Dropout(self.dropout)(y, train=train)

    def feed(y, suffix):
      return self._mlp(suffix)(y, train=train)

    if self.parts.layout == "parallel":
      y = self._norm("LayerNorm_0")(x)
      y = attend(y, "") + feed(y, "")
      return x + self.branches.applied(y, "LayerScale_1", rate, train=train), None
    x = self._added(x, attend, "LayerNorm_0", "LayerScale_1", rate, train=train)
    return self._added(x, feed, "LayerNorm_2", "LayerScale_3", rate, train=train), None

  @nn.nowrap
  def _added(self, x, layer, norm, scale, rate, *, train):
    """x plus the residual branches with this layer."""
    total = x
    for i in range(self.parts.parallel_branches):
      suffix = f"_branch{i}" if i else ""
      if self.parts.norm_place == "before":
        y = layer(self._norm(norm + suffix)(x), suffix)
      else:
        y = self._norm(norm + suffix)(layer(x, suffix))
      total = total + self.branches.applied(y, scale + suffix, rate, train=train)
    return total

  @nn.nowrap
  def _norm(self, name):
    keep = self.attention == "cudnn"
    return self.parts.norm_of(self.dtype, self.norm_epsilon, name, keep=keep)

  @nn.nowrap
  def _attention(self, suffix, *, grid, count):
    return Attention(
      self.heads,
      self.dtype,
      self.attention,
      self.relative,
      count,
      self.qk_norm,
      self.norm_epsilon,
      self.parts,
      grid,
      self.before,
      name=f"MultiHeadDotProductAttention_1{suffix}",
    )

  @nn.nowrap
  def _mlp(self, suffix):
    hidden_norm = self.parts.norm if self.parts.mlp_norm else ""
    return MlpBlock(
      self.mlp_dim,
      self.dropout,
      self.dtype,
      self.activation,
      self.parts.mlp,
      hidden_norm,
      self.norm_epsilon,
      self.parts.dense_bias,
      name=f"MlpBlock_3{suffix}",
    )


class AxialBlock(nn.Module):
  """A block over the rows of the grid, then one over its columns (Appendix D.6).

  Attributes:
    grid: rows and columns of tokens; there are no tokens before the patches.
    options: fields of both `EncoderBlock`s.
    position: as in `EncoderBlock`.
  """

  grid: tuple[int, int]
  options: dict
  position: dict | None = None

  @nn.compact
  def __call__(
    self,
    x: jax.Array,
    shared: jax.Array | None,
    train: bool,
    rate=None,
    start=None,
    tables: Tables = NO_TABLES,
  ):
    """As `EncoderBlock`; the tokens are those of the grid in raster order, `rate` is None.

    There are no `start` and no tables.
    """
    batch, _, width = x.shape
    rows, columns = self.grid
    x = add_positions(x, shared, self.position)
    x = x.reshape(batch * rows, columns, width)
    x, _ = EncoderBlock(**self.options, name="row")(x, None, train)
    x = x.reshape(batch, rows, columns, width).swapaxes(1, 2).reshape(-1, rows, width)
    x, _ = EncoderBlock(**self.options, name="column")(x, None, train)
    x = x.reshape(batch, columns, rows, width).swapaxes(1, 2)
    return x.reshape(batch, rows * columns, width), None


class Encoder(nn.Module):
  """The encoder in two stages with separate parameters: first `add_positions`, then the blocks.

  Attributes:
    grid: rows and columns of patches.
    before: number of tokens before the patches.
    others: as in `vit_jax.models.vit.ViT`.
  """

  grid: tuple[int, int]
  before: int
  depth: int
  mlp_dim: int
  heads: int
  dropout: float
  positions: str
  position_place: str
  axial: bool
  dtype: jnp.dtype
  attention: str
  scan: bool
  remat: str
  activation: str
  norm_epsilon: float
  qk_norm: bool = False
  branches: Branches = Branches()
  parts: Parts = Parts()
  kv_heads_from: int = 0
  whole_depth: int = 0
  global_blocks: tuple[int, ...] = ()
  rotary_side: int = 0
  relative_dim: int = 0
  first_norm: str = "none"
  final_norm: str = "tokens"

  @nn.compact
  def add_positions(self, x: jax.Array, *, train: bool) -> jax.Array:
    """Adds the stem's position embeddings, if any, and dropout: (B, N, D) -> (B, N, D)."""
    if position := self._position("stem", x.shape[-1]):
      x = x + PositionEmbedding(**position, name="posembed_input")().astype(x.dtype)
    return Dropout(self.dropout)(x, train=train)

  @nn.compact
  def __call__(self, x: jax.Array, *, train: bool) -> jax.Array:
    """The blocks and the norms around them: (B, N, D) -> (B, N, D)."""
    count = x.shape[1]
    shared = None
    if position := self._position("every_layer_shared", x.shape[-1]):
      # This name differs, so that the parameters alone identify the model.
      shared = PositionEmbedding(**position, name="posembed_shared")()
    if self.first_norm == "tokens":
      x = self._norm("first_norm")(x)
    if self.attention == "cudnn" and not self.axial:
      # Padding once here moves a twelfth of the bytes that padding in each attention would.
      x = batch_first(padded(x, fitting(count)))
    options = self._block_options(count) | dict(position=self._position("every_layer", x.shape[-1]))
    block = AxialBlock if self.axial else EncoderBlock
    block = remat(block, self.remat, scan=self.scan, static_argnums=(3,))
    rates = self.branches.rates(self.depth)
    starts = self._starts()
    tables = self._tables(x.shape[-1])
    if self.scan:
      stacked = self._stacked(block)(**options, name="encoderblock")
      x, _ = stacked(x, shared, train, rates, starts, tables)
    else:
      for i in range(self.depth):
        rate = None if rates is None else rates[i]
        start = None if starts is None else starts[i]
        own = options | self._own_options(i)
        x, _ = block(**own, name=f"encoderblock_{i}")(x, shared, train, rate, start, tables)
    x = x[:, :count]
    if self.final_norm != "tokens":
      return x
    return self._norm("encoder_norm")(x)

  @nn.nowrap
  def _norm(self, name):
    return self.parts.norm_of(self.dtype, self.norm_epsilon, name)

  @nn.nowrap
  def _starts(self) -> np.ndarray | None:
    """The first lambda of differential attention in each block, (depth,); None: there is none.

    Source: Ye et al., "Differential Transformer", 2024, Section 2.1, with blocks counted from 0.
    """
    if not self.parts.differential:
      return None
    return np.float32(0.8 - 0.6 * np.exp(-0.3 * np.arange(self.depth)))

  @nn.nowrap
  def _tables(self, width: int) -> Tables:
    """What the blocks share; call it from a compact method."""
    tables = NO_TABLES
    convention = CONVENTIONS.get(self.parts.rotary)
    if convention and not convention.learned:
      by = turns(convention, self.grid, self.before, width // self.heads, self.rotary_side)
      tables = dataclasses.replace(tables, rotary=by)
    if self.positions in RELATIVE_BIASES and self.position_place == "every_layer_shared":
      bias = RelativeBias(**self._relative_bias(), name="relative_bias")()
      tables = dataclasses.replace(tables, bias=bias)
    return tables

  @nn.nowrap
  def _relative_bias(self) -> dict:
    """Fields of a `RelativeBias`."""
    return dict(
      kind=self.positions,
      grid=self.grid,
      before=self.before,
      heads=self.heads,
      hidden=self.relative_dim,
    )

  @nn.nowrap
  def _own_options(self, i: int) -> dict:
    """The fields of block i that other blocks have otherwise."""
    ends = self.kv_heads_from
    changes = {}
    if ends and not ends <= i < (self.whole_depth or self.depth) - ends:
      changes["kv_heads"] = 0
    if i in self.global_blocks:
      changes["window"] = 0
    if not changes:
      return {}
    return dict(parts=dataclasses.replace(self.parts, **changes))

  @nn.nowrap
  def _position(self, place: str, width: int) -> dict | None:
    """Fields of the `PositionEmbedding` at this place; None if there is none."""
    if self.positions not in ADDED or self.position_place != place:
      return None
    return dict(kind=self.positions, grid=self.grid, before=self.before, width=width)

  @nn.nowrap
  def _block_options(self, count: int) -> dict:
    """Fields of every block for this many tokens, without its position embedding."""
    options = dict(
      mlp_dim=self.mlp_dim,
      heads=self.heads,
      dropout=self.dropout,
      dtype=self.dtype,
      attention=self.attention,
      activation=self.activation,
      norm_epsilon=self.norm_epsilon,
      relative=self.positions == "relative",
      qk_norm=self.qk_norm,
      branches=self.branches,
      parts=self.parts,
    )
    if self.axial:
      return dict(grid=self.grid, options=options)
    own = self.positions in RELATIVE_BIASES and self.position_place != "every_layer_shared"
    return options | dict(
      count=count,
      grid=self.grid,
      before=self.before,
      relative_bias=self._relative_bias() if own else None,
    )

  @nn.nowrap
  def _stacked(self, block):
    """`depth` blocks as one module class, whose parameters have a first axis of that size."""
    stacked = nn.scan(
      block,
      variable_axes={"params": 0},
      length=self.depth,
      split_rngs={"params": True, "dropout": True},
      # Each block gets its own rate and its own start.
      in_axes=(nn.broadcast, nn.broadcast, 0, 0, nn.broadcast),
    )
    if self.is_initializing():
      return stacked
    # If each block cast its parameters itself, the backward pass would keep a second copy of them.
    cast = functools.partial(in_type, dtype=self.dtype)
    return nn.map_variables(stacked, "params", trans_in_fn=cast)


# Parts of the names of norms, of rotary frequencies and of the factors of differential attention.
IN_FLOAT32 = ("LayerNorm", "rotary", "lambda")


def in_type(variables: dict, dtype: jnp.dtype) -> dict:
  """Casts the variables of blocks to `dtype`, except those that are used in float32."""

  def cast(path, leaf):
    name = jax.tree_util.keystr(path)
    if any(word in name for word in IN_FLOAT32):
      return leaf
    return leaf.astype(dtype)

  return jax.tree_util.tree_map_with_path(cast, variables)
