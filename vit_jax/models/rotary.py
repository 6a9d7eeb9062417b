"""Rotary positions in two dimensions: queries and keys are turned by the places of their patches.

Source: Su et al., "RoFormer", 2021 (arXiv 2104.09864, equations 14 and 15): pairs of channels of a
query or a key are turned by angles proportional to its place, so that the product of the two
depends only on the difference of their places. In two dimensions, half of the pairs are turned by
the row and half by the column. Tokens before the patches, such as the class token, are not turned.
The conventions of published models differ in frequencies, in places, and in which channels are a
pair.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

Grid = tuple[int, int]
Turns = tuple[jax.Array, jax.Array]  # cosines and sines


@dataclasses.dataclass(frozen=True)
class Convention:
  """How the places of a grid become angles.

  Pair k of the Dh / 4 of an axis turns by base^(-4 k / Dh) for each unit of its axis.

  Attributes:
    base: of the frequencies.
    columns_first: whether the first half of the pairs is turned by the column, not by the row.
    offset: added to rows and columns, which are counted from 0.
    centred: places are centres of patches, (i + 1/2) / count, from -1 to 1 along each axis, and a
      frequency is full turns for each unit.
    halves: channels k and k + Dh / 2 are a pair; otherwise channels 2 k and 2 k + 1 are.
    learned: each head of each block learns its frequencies for rows and for columns, and every pair
      is turned by both.
  """

  base: float
  columns_first: bool = False
  offset: float = 0.0
  centred: bool = False
  halves: bool = False
  learned: bool = False


CONVENTIONS = {
  # Fang et al., "EVA-02", 2023 (arXiv 2303.11331, Section 2.1).
  "eva02": Convention(10_000),
  # Bolya et al., "Perception Encoder", 2025 (arXiv 2504.13181): places are counted from 1 in models
  # with a class token, and from 0 in the largest, which has none.
  "perception": Convention(10_000, columns_first=True, offset=1.0),
  "perception_from_0": Convention(10_000, columns_first=True),
  # Heo et al., "Rotary position embedding for Vision Transformer", 2024 (arXiv 2403.13298, Sections
  # 3.2 and 3.3): RoPE-axial and RoPE-mixed.
  "axial": Convention(100, columns_first=True),
  "mixed": Convention(10, columns_first=True, learned=True),
  # Simeoni et al., "DINOv3", 2025 (arXiv 2508.10104), as in its published code.
  "dinov3": Convention(100, centred=True, halves=True),
}
FREQUENCIES = "pos_embedding_rotary"  # name of the parameter of "mixed"


def places(convention: Convention, grid: Grid, side: int = 0) -> np.ndarray:
  """(2, N) float64: of each patch, in raster order, the place along both axes.

  Args:
    convention: its axes are in its order.
    grid: rows and columns of patches.
    side: rows and columns of the grid that the model was made for, to which the places are scaled
      (EVA-02, Section 2.1); 0: they are not scaled.
  """
  axes = []
  for count in grid:
    axis = np.arange(count) + convention.offset
    if convention.centred:
      axis = 2 * (np.arange(count) + 0.5) / count - 1
    if side:
      axis = axis / count * side
    axes.append(axis)
  rows, columns = (x.reshape(-1) for x in np.meshgrid(*axes, indexing="ij"))
  if convention.columns_first:
    return np.stack([columns, rows])
  return np.stack([rows, columns])


def turns(convention: Convention, grid: Grid, before: int, channels: int, side: int = 0) -> Turns:
  """Cosines and sines of the angles of each token, both (1, before + N, 1, channels) float32.

  Args:
    convention, grid, side: as for `places`.
    before: tokens before the patches, which have the angle 0.
    channels: Dh of a head, divisible by 4.
  """
  rates = convention.base ** (-4 * np.arange(channels // 4) / channels)
  if convention.centred:
    rates = 2 * np.pi * rates
  angles = places(convention, grid, side)[:, :, None] * rates  # (2, N, Dh / 4)
  angles = np.concatenate([*angles], axis=-1)
  angles = np.pad(angles, ((before, 0), (0, 0)))[None, :, None]
  wide = _per_channel(convention, angles, np)
  return jnp.asarray(np.cos(wide), jnp.float32), jnp.asarray(np.sin(wide), jnp.float32)


def learned_turns(convention: Convention, frequencies: jax.Array, grid: Grid, before: int) -> Turns:
  """As `turns`, both (1, before + N, heads, Dh), from frequencies (2, heads, Dh / 2).

  The first axis of the frequencies is that of `places`.
  """
  first, second = jnp.asarray(places(convention, grid), jnp.float32)[..., None, None]
  frequencies = frequencies.astype(jnp.float32)
  angles = first * frequencies[0] + second * frequencies[1]  # (N, heads, Dh / 2)
  angles = jnp.pad(angles, ((before, 0), (0, 0), (0, 0)))[None]
  wide = _per_channel(convention, angles, jnp)
  return jnp.cos(wide), jnp.sin(wide)


def first_frequencies(key: jax.Array, heads: int, channels: int, base: float) -> jax.Array:
  """Initial frequencies (2, heads, channels / 2): a random direction for each head.

  Source: Heo et al., 2024, Section 3.3 and published code: half of the pairs turn along the
  direction, and half across it.
  """
  size = base ** (-4 * jnp.arange(channels // 4) / channels)
  angle = jax.random.uniform(key, (heads, 1), maxval=2 * jnp.pi)
  along, across = angle, angle + jnp.pi / 2
  columns = jnp.concatenate([size * jnp.cos(along), size * jnp.cos(across)], axis=-1)
  rows = jnp.concatenate([size * jnp.sin(along), size * jnp.sin(across)], axis=-1)
  return jnp.stack([columns, rows])


def turned(convention: Convention, x: jax.Array, by: Turns) -> jax.Array:
  """(B, N, heads, Dh) with each pair of channels (a, b) as (a cos - b sin, b cos + a sin)."""
  cos, sin = by
  wide = x.astype(jnp.float32)
  if convention.halves:
    first, second = jnp.split(wide, 2, axis=-1)
    across = jnp.concatenate([-second, first], axis=-1)
  else:
    across = jnp.stack([-wide[..., 1::2], wide[..., ::2]], axis=-1).reshape(x.shape)
  return (wide * cos + across * sin).astype(x.dtype)


def _per_channel(convention, angles, module):
  """Angles of pairs (..., Dh / 2) -> of channels (..., Dh)."""
  if convention.halves:
    return module.concatenate([angles, angles], axis=-1)
  return module.repeat(angles, 2, axis=-1)
