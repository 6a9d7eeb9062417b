"""Multi-head attention (Appendix A), with relative position embeddings (Appendix D.4) if asked.

For XLA, the gradient of `jax.nn.dot_product_attention` is written by hand. JAX's own gradient keeps
the logits in float32, and each of the four matmuls of the backward pass computes the softmax from
them again. The gradient here keeps the probabilities, in the type of the computation.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from vit_jax.models.layers import EPSILON, RMSNorm
from vit_jax.models.parts import NO_TABLES, Parts, Tables
from vit_jax.models.rotary import (
  CONVENTIONS,
  FREQUENCIES,
  Turns,
  first_frequencies,
  learned_turns,
  turned,
)

HANDED_OUT = "attention_weights"  # name of the sown intermediate
# Names of the parameters of relative positions along rows and columns.
AXES = ("pos_embedding_rows", "pos_embedding_columns")
HEAD_EPSILON = 1e-5  # of the norm of each head in differential attention, as in its published code


class Attention(nn.Module):
  """softmax(q k^T / sqrt(D_h)) v per head, then one projection of all heads.

  Parameters are named and shaped as in the published weights: query, key and value
  (D, heads, D_h), out (heads, D_h, D). The softmax is computed in float32.

  Attributes:
    heads: number of heads; D_h = D / heads.
    dtype: type of the computation.
    implementation: "cudnn" uses cuDNN, on GPUs; "heads_first" uses `attend_heads_first`; "xla" and
      "auto" use `attend`.
    relative: adds a learned key r for each offset between two tokens, (2 N - 1, heads, D_h). The
      logit of a query for a key is then q (k + r) / sqrt(D_h). Offsets are counted along the token
      axis: the class token first, then the patches in raster order.
    count: number of tokens to attend to; the rest are padding. None: all.
    qk_norm: a norm over the D_h channels of each query and of each key, with parameters that all
      heads share (Dehghani et al., "Scaling Vision Transformers to 22 billion parameters",
      2023, Section 2; biases as in timm). Not in the paper.
    norm_epsilon: of the norms.
    parts: what else differs from the paper's attention.
    grid, before: rows and columns of patches, and tokens before them, for learned rotary positions
      and relative ones along rows and columns.
  """

  heads: int
  dtype: jnp.dtype
  implementation: str = "xla"
  relative: bool = False
  count: int | None = None
  qk_norm: bool = False
  norm_epsilon: float = EPSILON
  parts: Parts = Parts()
  grid: tuple[int, int] = (0, 0)
  before: int = 0

  @nn.compact
  def __call__(
    self,
    x: jax.Array,
    source: jax.Array | None = None,
    *,
    tables: Tables = NO_TABLES,
    start: jax.Array | float | None = None,
  ) -> jax.Array:
    """(B, N, D) -> (B, N, D); keys and values come from `source` (B, M, D), by default x.

    `start` is the first value of lambda in differential attention.
    """
    width = x.shape[-1]
    if source is None:
      source = x
    parts = self.parts
    query, key, value = self._heads(x, source, tables)
    if parts.differential:
      y = self._difference(query, key, value, start)
    else:
      y = self._attended(query, key, value, self._bias(query, key, tables))
    if parts.attention_norm:
      norm = parts.norm_of(self.dtype, self.norm_epsilon, "LayerNorm_heads")
      y = norm(y.reshape(*y.shape[:-2], width)).reshape(y.shape)
    return nn.DenseGeneral(
      width,
      axis=(-2, -1),
      use_bias=parts.dense_bias,
      dtype=self.dtype,
      kernel_init=nn.initializers.xavier_uniform(),
      name="out",
    )(y)

  def _heads(self, x, source, tables: Tables) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Queries (B, N, heads, D_h), keys and values (B, M, heads, D_h)."""
    parts, width = self.parts, x.shape[-1]

    def project(tokens, name, heads, biased):
      size, flat = width // self.heads, self.implementation == "cudnn"
      return Projection(heads, self.dtype, flat=flat, size=size, bias=biased, name=name)(tokens)

    fewer = parts.kv_heads or self.heads
    query = project(x, "query", self.heads, parts.qkv_bias != "none")
    key = project(source, "key", fewer, parts.qkv_bias == "all")
    value = project(source, "value", fewer, parts.qkv_bias != "none")
    if self.qk_norm:
      query = parts.norm_of(self.dtype, self.norm_epsilon, "LayerNorm_query")(query)
      key = parts.norm_of(self.dtype, self.norm_epsilon, "LayerNorm_key")(key)
    if parts.rotary != "none":
      by = self._turns(tables, width // self.heads, x.shape[1])
      query = turned(CONVENTIONS[parts.rotary], query, by)
      key = turned(CONVENTIONS[parts.rotary], key, by)
    if fewer != self.heads:
      key = jnp.repeat(key, self.heads // fewer, axis=2)
      value = jnp.repeat(value, self.heads // fewer, axis=2)
    return query, key, value

  def _bias(self, query, key, tables: Tables) -> jax.Array | None:
    """What relative positions add to the logits, (B or 1, heads, N, M); None without them."""
    count = self.count or key.shape[1]
    tokens, _, size = query.shape[1:]
    if self.parts.relative_axes:
      axes = [self._axis(*axis, size) for axis in zip(AXES, self.grid, strict=True)]
      return axis_logits(query[:, :count], *axes, self.grid)
    if self.relative:
      shape = (2 * count - 1, self.heads, size)
      table = self.param("pos_embedding_relative", nn.initializers.normal(0.02), shape)
      padding = tokens - count
      table = jnp.pad(table.astype(self.dtype), ((padding, padding), (0, 0), (0, 0)))
      return relative_logits(query, table)
    return tables.bias

  def _attended(self, query, key, value, bias) -> jax.Array:
    """The attended values of each head, (B, N, heads, D_h), by the chosen implementation."""
    count = self.count or key.shape[1]
    hand_out(self, query, key, bias, count)
    if self.implementation == "cudnn":
      if bias is not None:
        bias = bias.astype(self.dtype)
      return attend_by_cudnn(query, key, value, bias, count)
    if self.implementation == "heads_first":
      return attend_heads_first(query, key, value, bias)
    return attend(query, key, value, bias)

  def _turns(self, tables: Tables, channels: int, tokens: int) -> Turns:
    """Cosines and sines of the tokens; those of padding are 0."""
    convention = CONVENTIONS[self.parts.rotary]
    by = tables.rotary
    if convention.learned:
      init = lambda key: first_frequencies(key, self.heads, channels, convention.base)
      frequencies = self.param(FREQUENCIES, init)
      by = learned_turns(convention, frequencies, self.grid, self.before)
    return tuple(padded(x, tokens) for x in by)

  def _axis(self, name: str, count: int, size: int) -> jax.Array:
    """Relative position embeddings of the offsets along an axis, (2 count - 1, D_h)."""
    return self.param(name, nn.initializers.zeros, (2 * count - 1, size))

  def _difference(self, query, key, value, start):
    """Differential attention of each head, (B, N, heads, D_h).

    A head has two queries and two keys of D_h / 2 channels, and attends with softmax(q1 k1^T) -
    lambda softmax(q2 k2^T). Its output is normalised, and scaled by 1 - start. Source: Ye et al.,
    "Differential Transformer", 2024 (arXiv 2410.05258, equations 1 to 3).
    """
    size = query.shape[-1] // 2
    names = ("lambda_query_1", "lambda_key_1", "lambda_query_2", "lambda_key_2")
    query_1, key_1, query_2, key_2 = (Factors(size, name=name)() for name in names)
    factor = jnp.exp((query_1 * key_1).sum()) - jnp.exp((query_2 * key_2).sum()) + start
    first = jax.nn.softmax(_logits(query[..., :size], key[..., :size], None), axis=-1)
    second = jax.nn.softmax(_logits(query[..., size:], key[..., size:], None), axis=-1)
    weights = (first - factor * second).astype(value.dtype)
    y = jnp.einsum("bhqk,bkhd->bqhd", weights, value)
    y = RMSNorm(self.dtype, HEAD_EPSILON, name="LayerNorm_head")(y)
    return y * jnp.asarray(1 - start, y.dtype)


class Factors(nn.Module):
  """A learned vector of the lambda of differential attention, initially around 0."""

  size: int

  @nn.compact
  def __call__(self) -> jax.Array:
    """(size,) float32."""
    return self.param("scale", nn.initializers.normal(0.1), (self.size,))


def hand_out(
  attention: nn.Module,
  query: jax.Array,
  key: jax.Array,
  bias: jax.Array | None = None,
  count: int | None = None,
):
  """Sows the attention weights of a module, (B, heads, N, M) float32, as a Flax intermediate.

  They are computed only if the caller asks for intermediates.

  Args:
    attention: the module that computes them.
    query, key, bias: as for `attend`.
    count: number of tokens without the padding after them; None: there is no padding.
  """
  if attention.is_mutable_collection("intermediates") and not attention.is_initializing():
    query = query[:, :count].astype(jnp.float32)
    key = key[:, :count].astype(jnp.float32)
    if bias is not None:
      bias = bias[..., :count, :count]
    weights = jax.nn.softmax(_logits(query, key, bias), axis=-1)
    attention.sow("intermediates", HANDED_OUT, weights)


class Projection(nn.Module):
  """x W + b, divided into heads.

  Attributes:
    heads: number of heads.
    dtype: type of the computation.
    flat: use one 2-D matmul, so that cuBLAS adds the bias itself. On TPUs this would move tokens.
    size: channels of a head; 0: the width divided by `heads`.
    bias: whether there is a b.
  """

  heads: int
  dtype: jnp.dtype
  flat: bool
  size: int = 0
  bias: bool = True

  @nn.compact
  def __call__(self, x: jax.Array) -> jax.Array:
    """(B, N, D) -> (B, N, heads, size)."""
    width = x.shape[-1]
    shape = self.heads, self.size or width // self.heads
    outputs = shape[0] * shape[1]

    def init_kernel(key, kernel_shape):
      # Initialised as one matrix, so that the scale does not depend on the number of heads.
      return nn.initializers.xavier_uniform()(key, (width, outputs)).reshape(kernel_shape)

    kernel = self.param("kernel", init_kernel, (width, *shape))
    if not self.bias:
      x, kernel = nn.dtypes.promote_dtype(x, kernel, dtype=self.dtype)
      return jnp.einsum("bnd,dhk->bnhk", x, kernel)
    bias = self.param("bias", nn.initializers.zeros, shape)
    x, kernel, bias = nn.dtypes.promote_dtype(x, kernel, bias, dtype=self.dtype)
    if not self.flat:
      return jnp.einsum("bnd,dhk->bnhk", x, kernel) + bias
    y = x.reshape(-1, width) @ kernel.reshape(width, outputs) + bias.reshape(-1)
    return y.reshape(*x.shape[:-1], *shape)


@jax.custom_vjp
def attend(query: jax.Array, key: jax.Array, value: jax.Array, bias: jax.Array | None) -> jax.Array:
  """softmax(q k^T / sqrt(D_h) + bias) v of each head; logits and softmax are float32.

  Args:
    query: (B, N, heads, D_h).
    key, value: (B, M, heads, D_h).
    bias: (B, heads, N, M), or (1, heads, N, M) for all images alike, or None.

  Returns:
    (B, N, heads, D_h).
  """
  return jax.nn.dot_product_attention(query, key, value, bias=bias, implementation="xla")


def _forward(query, key, value, bias):
  top = _logits(query, key, bias).max(axis=-1, keepdims=True)
  # The logits are computed twice: on a TPU, this is faster than writing and reading them.
  weights = jnp.exp(_logits(*jax.lax.optimization_barrier((query, key)), bias) - top)
  # Dividing last lets one pass over the logits give both the weights and their sum.
  total = weights.sum(axis=-1, keepdims=True)
  weights = weights.astype(query.dtype)
  y = jnp.einsum("bhqk,bkhd->bqhd", weights, value, preferred_element_type=jnp.float32)
  y = (y / total.swapaxes(1, 2)).astype(query.dtype)
  y = jax.lax.optimization_barrier(y)  # otherwise XLA saves the undivided y, in float32
  return y, (query, key, value, bias, weights, total, y)


def _backward(saved, grad):
  query, key, value, bias, weights, total, y = saved
  # Gradient of softmax, p = weights / total: dlogits = p (dp - sum over keys of p dp); the sum is
  # y dy.
  mean = jnp.einsum("bqhd,bqhd->bhq", grad, y, preferred_element_type=jnp.float32)
  dlogits = weights / total * (_matmul(grad, value) - mean[..., None])
  scaled = (dlogits / query.shape[-1] ** 0.5).astype(query.dtype)
  dquery = jnp.einsum("bhqk,bkhd->bqhd", scaled, key)
  dkey = jnp.einsum("bhqk,bqhd->bkhd", scaled, query)
  divided = (grad / total.swapaxes(1, 2)).astype(grad.dtype)
  dvalue = jnp.einsum("bhqk,bqhd->bkhd", weights, divided)
  return dquery, dkey, dvalue, _of_bias(dlogits, bias)


def _of_bias(dlogits, bias):
  """The gradient of the bias, which all examples may share; None if there is no bias."""
  if bias is None:
    return None
  if len(bias) < len(dlogits):
    dlogits = dlogits.sum(axis=0, keepdims=True)
  return dlogits.astype(bias.dtype)


def _logits(query, key, bias):
  logits = _matmul(query, key) / query.shape[-1] ** 0.5
  if bias is None:
    return logits
  return logits + bias


def _matmul(a, b):
  return jnp.einsum("bqhd,bkhd->bhqk", a, b, preferred_element_type=jnp.float32)


attend.defvjp(_forward, _backward)


@jax.custom_vjp
def attend_heads_first(
  query: jax.Array, key: jax.Array, value: jax.Array, bias: jax.Array | None
) -> jax.Array:
  """`attend`, computed with the heads before the tokens in memory; for CPUs.

  There, XLA's matmuls of a head are several times as fast if its tokens and channels are the last
  two axes. The barriers keep XLA from moving the heads back. In bfloat16 the divided query is
  rounded, which `attend` avoids.
  """
  return _forward_heads_first(query, key, value, bias)[0]


def _forward_heads_first(query, key, value, bias):
  scaled = query / query.shape[-1] ** 0.5
  query, key, value = jax.lax.optimization_barrier(tuple(map(_swapped, (scaled, key, value))))
  logits = jnp.einsum("bhqd,bhkd->bhqk", query, key, preferred_element_type=jnp.float32)
  if bias is not None:
    logits = logits + bias
  weights = jax.lax.optimization_barrier(jax.nn.softmax(logits, axis=-1).astype(value.dtype))
  y = jnp.einsum("bhqk,bhkd->bhqd", weights, value, preferred_element_type=jnp.float32)
  y = jax.lax.optimization_barrier(y.astype(value.dtype))
  return _swapped(y), (query, key, value, bias, weights, y)


def _backward_heads_first(saved, grad):
  query, key, value, bias, weights, y = saved  # the query is divided by sqrt(D_h)
  grad = jax.lax.optimization_barrier(_swapped(grad))
  # As in `_backward`.
  mean = jnp.einsum("bhqd,bhqd->bhq", grad, y, preferred_element_type=jnp.float32)
  dweights = jnp.einsum("bhqd,bhkd->bhqk", grad, value, preferred_element_type=jnp.float32)
  dlogits = weights * (dweights - mean[..., None])
  rounded = jax.lax.optimization_barrier(dlogits.astype(query.dtype))
  dquery = jnp.einsum("bhqk,bhkd->bhqd", rounded, key) / query.shape[-1] ** 0.5
  dkey = jnp.einsum("bhqk,bhqd->bhkd", rounded, query)
  dvalue = jnp.einsum("bhqk,bhqd->bhkd", weights, grad)
  moved = map(_swapped, jax.lax.optimization_barrier((dquery, dkey, dvalue)))
  return *moved, _of_bias(dlogits, bias)


def _swapped(x):
  """Heads and tokens exchanged: (B, N, heads, D_h) -> (B, heads, N, D_h), and back."""
  return x.swapaxes(1, 2)


attend_heads_first.defvjp(_forward_heads_first, _backward_heads_first)


def attend_by_cudnn(
  query: jax.Array, key: jax.Array, value: jax.Array, bias: jax.Array | None, count: int
) -> jax.Array:
  """`attend` as one cuDNN kernel, which never writes the logits to memory.

  Tokens are padded to the number that `fitting` gives. The number of real keys is always passed:
  without it, or with a mask in the bias instead, gradients for some lengths are NaN on Hopper where
  all logits of a query are far below zero (pytorch/pytorch issue 196678; NVIDIA/cudnn-frontend
  issues 160 and 1072).

  Args:
    query, key, value, bias: as for `attend`, in bfloat16.
    count: number of keys that get weight; the rest are padding.
  """
  queries = query.shape[1]
  query, key, value = (padded(x, fitting(x.shape[1])) for x in (query, key, value))
  if bias is not None:
    sides = [(0, fitting(size) - size) for size in bias.shape[2:]]
    bias = jnp.pad(bias, ((0, 0), (0, 0), *sides))
  counts = jnp.full(key.shape[0], count, jnp.int32)
  y = jax.nn.dot_product_attention(
    query, key, value, bias=bias, key_value_seq_lengths=counts, implementation="cudnn"
  )
  return y[:, :queries]


def padded(x: jax.Array, tokens: int) -> jax.Array:
  """(B, N, ...) padded with zeros to `tokens` tokens; unchanged if it already has as many."""
  missing = tokens - x.shape[1]
  if not missing:
    return x
  other_axes = [(0, 0)] * (x.ndim - 2)
  return jnp.pad(x, ((0, 0), (0, missing), *other_axes))


def fitting(tokens: int) -> int:
  """The smallest number of tokens, at least `tokens`, for which cuDNN's gradient is reliable.

  JAX refuses odd numbers. Numbers that are 64 modulo 128 can give NaN (pytorch/pytorch issue
  196678).
  """
  tokens += tokens % 2
  return tokens + 2 * (tokens % 128 == 64)


def relative_logits(query: jax.Array, table: jax.Array) -> jax.Array:
  """Products of queries and relative embeddings, divided by sqrt(D_h).

  Args:
    query: (B, N, heads, D_h).
    table: (2 N - 1, heads, D_h); entry N - 1 + k - q belongs to query q and key k.

  Returns:
    (B, heads, N, N).
  """
  tokens = query.shape[1]
  dim = query.shape[-1]
  logits = jnp.einsum("bqhd,rhd->bhqr", query, table) / dim**0.5
  # Entry (q, k) is in column N - 1 + k - q. If rows are padded to 2 N, its flat position is
  # q 2 N + N - 1 + k - q = (N - 1) + q (2 N - 1) + k: rows of 2 N - 1 after the first N - 1.
  logits = jnp.pad(logits, ((0, 0), (0, 0), (0, 0), (0, 1)))
  logits = logits.reshape(*logits.shape[:2], -1)[..., tokens - 1 :]
  logits = logits[..., : tokens * (2 * tokens - 1)]
  return logits.reshape(*logits.shape[:2], tokens, 2 * tokens - 1)[..., :tokens]


def axis_logits(
  query: jax.Array, rows: jax.Array, columns: jax.Array, grid: tuple[int, int]
) -> jax.Array:
  """q r, with r the embedding of the offset in rows plus that in columns of query and key.

  Source: Li et al., "MViTv2", 2022 (arXiv 2112.01526, equation 4).

  Args:
    query: (B, N, heads, D_h), the patches of the grid.
    rows, columns: (2 rows - 1, D_h) and (2 columns - 1, D_h); offsets are query minus key, from the
      most negative.
    grid: rows and columns.

  Returns:
    (B, heads, N, N).
  """
  batch, tokens, heads, size = query.shape
  query = query.reshape(batch, *grid, heads, size)
  down, right = (np.arange(n)[:, None] - np.arange(n) + n - 1 for n in grid)
  along_rows = jnp.einsum("byxhd,ykd->bhyxk", query, rows.astype(query.dtype)[down])
  along_columns = jnp.einsum("byxhd,xkd->bhyxk", query, columns.astype(query.dtype)[right])
  logits = along_rows[..., :, None] + along_columns[..., None, :]
  return logits.reshape(batch, heads, tokens, tokens)
