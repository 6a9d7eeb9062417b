"""Layers that all families share, where Flax's own are slower, larger or less exact.

LayerNorm, GELU and the head have gradients written by hand. With JAX's own gradient of LayerNorm,
XLA on the CPU recomputes the residual chain of unrolled blocks for every use; the closed form
halves the time of a training step there (docs/decisions/layers.md). The gradient of GELU needs
only its input, the largest array of a block; JAX's own keeps several arrays of this size.
"""

import functools
import math
from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.experimental.layout import Layout, with_layout_constraint
from jax.sharding import PartitionSpec as P

EPSILON = 1e-6  # of LayerNorm, in the published weights
LEVELS = 2**16  # a draw for dropout is a whole number from 0 to LEVELS - 1
POLICIES = {
  "dots": jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
  "everything": jax.checkpoint_policies.nothing_saveable,
}


def as_input(images: jax.Array, channels: int, dtype: jnp.dtype) -> jax.Array:
  """Images (B, H, W, channels) in [-1, 1] in the type of the computation.

  Raises:
    ValueError: they have another number of channels, or are integers, so that their pixels are not
      in [-1, 1].
  """
  if images.shape[-1] != channels:
    raise ValueError(
      f"The images have {images.shape[-1]} channels, and the model takes {channels}; give the "
      f"model channels={images.shape[-1]}, or other images."
    )
  if not jnp.issubdtype(images.dtype, jnp.floating):
    raise ValueError(
      f"The images are {images.dtype}; a model takes floats in [-1, 1]. For pixels from 0 to 255, "
      "give images / 127.5 - 1."
    )
  return images.astype(dtype)


def split_by_example(x: jax.Array) -> jax.Array:
  """x with its first axis split over "data" and "fsdp" of the current mesh, if there is one.

  If parameters are split, XLA would otherwise split activations by features too, and move them
  between devices in every layer. Moving the parameters takes less communication.
  """
  axes = split_axes()
  if not axes:
    return x
  return jax.lax.with_sharding_constraint(x, P(axes))


def split_axes() -> tuple[str, ...]:
  """The axes of the mesh over which examples are split; none inside of a shard_map."""
  mesh = jax.sharding.get_abstract_mesh()
  if mesh.empty or mesh.are_all_axes_manual:
    return ()
  return tuple(axis for axis in mesh.axis_names if axis != "model")


def batch_first(x: jax.Array) -> jax.Array:
  """(B, N, D) with the batch as the first axis in memory, on GPUs; examples stay on their devices.

  Without this constraint XLA makes the batch the last axis, and every matmul is transposed. Outside
  a shard_map the constraint would gather all examples on every device.
  """

  def constrained(x):
    return with_layout_constraint(x, Layout(major_to_minor=(0, 1, 2)))

  axes = split_axes()
  if not axes:
    return constrained(x)
  split = P(axes)
  return jax.shard_map(constrained, in_specs=split, out_specs=split)(x)


def remat(block, policy: str, *, scan: bool = False, static_argnums=()):
  """The module class `block`, with activations recomputed in the backward pass by `policy`.

  The policies are "none" (the same class), "dots" (all but the outputs of dense layers) and
  "everything".
  """
  if policy == "none":
    return block
  # Under scan the loop itself keeps XLA from merging the recomputation with the forward pass.
  return nn.remat(
    block, policy=POLICIES[policy], prevent_cse=not scan, static_argnums=static_argnums
  )


class LayerNorm(nn.Module):
  """(x - mean) / sqrt(variance + epsilon) * scale + bias over the last axis.

  Statistics are always float32; `dtype` is the type of the result. The variance is the mean of the
  squared deviations, which stays exact if the mean is large. `keep` is that of `normalize`.
  """

  dtype: jnp.dtype
  epsilon: float = EPSILON
  keep: bool = False

  @nn.compact
  def __call__(self, x: jax.Array) -> jax.Array:
    """(..., D) -> (..., D)."""
    scale = self.param("scale", nn.initializers.ones, (x.shape[-1],))
    bias = self.param("bias", nn.initializers.zeros, (x.shape[-1],))
    return normalize(x, scale, bias, self.epsilon, self.keep).astype(self.dtype)


@functools.partial(jax.custom_vjp, nondiff_argnums=(3, 4))
def normalize(
  x: jax.Array, scale: jax.Array, bias: jax.Array, epsilon: float, keep: bool = False
) -> jax.Array:
  """LayerNorm of (..., D) by scale and bias (D,); float32.

  With `keep` the backward pass reads the saved mean and deviation. Otherwise XLA on GPUs computes
  them again, and writes a float32 array for the gradients of scale and bias.
  """
  return _normalize_forward(x, scale, bias, epsilon, keep)[0]


def _normalize_forward(x, scale, bias, epsilon, keep):
  wide = x.astype(jnp.float32)
  mean = wide.mean(axis=-1, keepdims=True)
  centred = wide - mean
  rstd = jax.lax.rsqrt(jnp.square(centred).mean(axis=-1, keepdims=True) + epsilon)
  return centred * rstd * scale + bias, (x, mean, rstd, scale)


def _normalize_backward(epsilon, keep, saved, grad):
  x, mean, rstd, scale = saved
  if keep:
    mean, rstd = jax.lax.optimization_barrier((mean, rstd))
  unit = (x.astype(jnp.float32) - mean) * rstd
  scaled = grad * scale
  along = (scaled * unit).mean(axis=-1, keepdims=True)
  dx = rstd * (scaled - scaled.mean(axis=-1, keepdims=True) - unit * along)
  rows = tuple(range(x.ndim - 1))
  return dx.astype(x.dtype), (grad * unit).sum(rows), grad.sum(rows)


normalize.defvjp(_normalize_forward, _normalize_backward)


class RMSNorm(nn.Module):
  """x / sqrt(mean of squares + epsilon) * scale over the last axis.

  Source: Zhang and Sennrich, "Root mean square layer normalization", 2019 (arXiv 1910.07467,
  equation 4). The mean is float32; the fields are those of `LayerNorm`, and `keep` changes nothing.
  """

  dtype: jnp.dtype
  epsilon: float = EPSILON
  keep: bool = False

  @nn.compact
  def __call__(self, x: jax.Array) -> jax.Array:
    """(..., D) -> (..., D)."""
    scale = self.param("scale", nn.initializers.ones, (x.shape[-1],))
    wide = x.astype(jnp.float32)
    rrms = jax.lax.rsqrt(jnp.square(wide).mean(axis=-1, keepdims=True) + self.epsilon)
    return (wide * rrms * scale).astype(self.dtype)


NORMS = {"layer": LayerNorm, "rms": RMSNorm}


def with_slope(function: Callable, slope: Callable) -> Callable:
  """`function` of one array, with a gradient that needs only the input; `slope` is its derivative.

  Without the barrier XLA on CPUs also saves the tanh or erf of the forward pass. In bfloat16, the
  type on TPUs and GPUs, there is none: it would keep XLA from fusing what computes the input.
  """
  wrapped = jax.custom_vjp(function)

  def backward(x, grad):
    if x.dtype == jnp.float32:
      x = jax.lax.optimization_barrier(x)
    return ((grad * slope(x.astype(jnp.float32))).astype(x.dtype),)

  wrapped.defvjp(lambda x: (wrapped(x), x), backward)
  return wrapped


def tanh_slope(x: jax.Array) -> jax.Array:
  """The derivative of x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2."""
  scale = math.sqrt(2 / math.pi)
  cubic = 0.044715
  tanh = jnp.tanh(scale * (x + cubic * x**3))
  inner = scale * (1 + 3 * cubic * x**2)
  return 0.5 * (1 + tanh) + 0.5 * x * (1 - tanh**2) * inner


def normal(x: jax.Array) -> jax.Array:
  """The normal distribution function, in float32 as in torch: by erf.

  XLA's erfc is exact in the lower tail too, where x times it is nearly 0, and takes five times as
  long on CPUs.
  """
  return 0.5 * (1 + jax.lax.erf(x.astype(jnp.float32) * math.sqrt(0.5)))


def exact_gelu(x: jax.Array) -> jax.Array:
  """x times the normal distribution function (Hendrycks and Gimpel, Section 2)."""
  return (x * normal(x)).astype(x.dtype)


def normal_slope(x: jax.Array) -> jax.Array:
  """The derivative of x times the normal distribution function; x is float32."""
  return normal(x) + x * jax.scipy.stats.norm.pdf(x)


def quick_gelu(x: jax.Array) -> jax.Array:
  """x sigmoid(1.702 x) (Hendrycks and Gimpel, "GELUs", 2016, arXiv 1606.08415, Section 2)."""
  return x * jax.nn.sigmoid(1.702 * x)


# By timm's names: the tanh form of GELU, used by the published weights; the exact form, x times the
# normal distribution function, used by many other models; the form of OpenAI's CLIP; and SiLU,
# x sigmoid(x), for gated MLPs.
ACTIVATIONS = {
  "gelu_tanh": with_slope(functools.partial(jax.nn.gelu, approximate=True), tanh_slope),
  "gelu": with_slope(exact_gelu, normal_slope),
  "quick_gelu": quick_gelu,
  "silu": jax.nn.silu,
}


class Dropout(nn.Module):
  """Sets random elements to 0 and scales the others, so that the mean does not change.

  One number of the random generator decides about four elements. On TPUs, most of the cost of
  dropout is this generator (threefry: over a hundred integer operations for 64 bits, none of them
  on the matrix unit). 16 bits are precise enough for a rate.

  Attributes:
    rate: fraction of elements set to 0, 0 <= rate < 1.
  """

  rate: float

  @nn.compact
  def __call__(self, x: jax.Array, *, train: bool) -> jax.Array:
    """x unchanged if `train` is False or the rate is 0; else uses the random stream "dropout"."""
    if not train or self.rate == 0:
      return x
    return dropout(x, self.make_rng("dropout"), self.rate)


def dropout(x: jax.Array, key: jax.Array, rate: float) -> jax.Array:
  """(..., D) -> (..., D): 0 with probability `rate`, rounded to 2^-16, else x / (1 - rate).

  The draws depend only on the key and the shape, not on how x is split over devices.
  """
  lowest = round(rate * LEVELS)
  scale = LEVELS / (LEVELS - lowest)
  # In float32, because 1 / 0.9 has an error of 0.2% in bfloat16.
  scaled = (x.astype(jnp.float32) * scale).astype(x.dtype)
  return jnp.where(draws(key, x.shape) >= lowest, scaled, 0)


def draws(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
  """Uniform whole numbers from 0 to 2^16 - 1, of shape (..., D), uint32.

  Threefry gives 64 bits for a position, as two words. `jax.random.bits` would combine them into one
  word; the keys of `jax.random.split` hold both. Along the last axis, the lower halves of the first
  words come first, then their upper halves, then those of the second words.
  """
  *rows, width = shape
  words = jax.random.key_data(jax.random.split(key, (*rows, -(-width // 4))))
  halves = [half for i in (0, 1) for half in (words[..., i] % LEVELS, words[..., i] // LEVELS)]
  return jnp.concatenate(halves, axis=-1)[..., :width]


class Head(nn.Module):
  """The classifier, y W + b; matmuls in the type of the computation, sums in float32.

  Attributes:
    num_classes: number of logits.
    bias: initial value of b.
    dtype: type of the computation; parameters are float32.
    std: standard deviation of the initial W; 0: W is zero (Section 3.2).
  """

  num_classes: int
  bias: float
  dtype: jnp.dtype
  std: float = 0.0

  @nn.compact
  def __call__(self, y: jax.Array) -> jax.Array:
    """(B, D) -> logits (B, num_classes) float32."""
    shape = y.shape[-1], self.num_classes
    initial = nn.initializers.normal(self.std) if self.std else nn.initializers.zeros
    kernel = self.param("kernel", initial, shape)
    bias = self.param("bias", nn.initializers.constant(self.bias), (self.num_classes,))
    return matmul(y.astype(self.dtype), kernel.astype(self.dtype)) + bias


@jax.custom_vjp
def matmul(y: jax.Array, kernel: jax.Array) -> jax.Array:
  """(B, D) times (D, K) in float32; both gradients are matmuls in the arguments' type.

  JAX's own gradients are matmuls with a float32 factor, and are summed over devices in float32.
  """
  return jnp.matmul(y, kernel, preferred_element_type=jnp.float32)


def _matmul_forward(y, kernel):
  return matmul(y, kernel), (y, kernel)


def _matmul_backward(saved, grad):
  y, kernel = saved
  grad = grad.astype(y.dtype)
  return grad @ kernel.T, y.T @ grad


matmul.defvjp(_matmul_forward, _matmul_backward)
