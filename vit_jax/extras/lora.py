"""LoRA: frozen kernels, and low-rank changes of them that are trained.

The changed kernels are computed from the parameters before the model is called, so no module knows
of them: blocks may be stacked and recomputed, and parameters split, as without. The price is time:
a step computes the gradient of each changed kernel, and from it those of A and B. What is saved is
the memory of gradients of all parameters, moments and averages.
"""

import dataclasses
import functools
import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from vit_jax.config import Config, ConfigError, Size, similar
from vit_jax.config.learning import ALL, OBJECTIVE_PARAMS
from vit_jax.learning.objective import Objective, Parametrization, Sums
from vit_jax.models.stacking import STACKED, matrix_axes
from vit_jax.process.text import is_regex, shown
from vit_jax.storage.tree import flatten, nest

NAME = "lora"  # of the setting, and of the subtree with all A and B
TRAINED = f"(head|pre_logits|{OBJECTIVE_PARAMS}|{NAME})/.*"
_STREAM = 2**32 - 4  # folded into the key of the initial parameters


class Matrix(NamedTuple):
  """A kernel as a matrix, or as a stack of matrices.

  Attributes:
    stack: (blocks,) for stacked blocks, else ().
    inputs: rows: the numbers that the kernel sums over.
    outputs: columns.
  """

  stack: tuple[int, ...]
  inputs: int
  outputs: int


def matrix_of(name: str, shape: tuple[int, ...]) -> Matrix:
  """A kernel of a block as a matrix."""
  rows, columns = matrix_axes(name, len(shape))
  return Matrix(shape[:rows], math.prod(shape[rows:columns]), math.prod(shape[columns:]))


def kernels_of_blocks(names: Iterable[str]) -> list[str]:
  """The names of the kernels that can be changed: those of the blocks of a Transformer, sorted.

  The MLP of relative positions is none of them: it computes a table, and has two inputs.
  """
  kernels = (name for name in names if STACKED in name and name.endswith("/kernel"))
  return sorted(name for name in kernels if "/relative_bias/" not in name)


def chosen(names: Iterable[str], pattern: str) -> list[str]:
  """The names of the kernels of blocks that match config.lora.kernels, sorted."""
  return [name for name in kernels_of_blocks(names) if re.fullmatch(pattern, name)]


def initial(key: jax.Array, matrix: Matrix, rank: int) -> dict:
  """A, a normal with variance 1 / inputs, and B, zeros; the kernel is unchanged at first."""
  a = jax.random.normal(key, (*matrix.stack, matrix.inputs, rank)) / math.sqrt(matrix.inputs)
  b = jnp.zeros((*matrix.stack, rank, matrix.outputs))
  return {"a": {"kernel": a}, "b": {"kernel": b}}


def merged(params: dict, scale: float, product: Callable) -> dict:
  """The model's parameters: W + scale A B for each kernel W that has an A and a B.

  Args:
    params: the parameters of a run.
    scale: alpha / rank.
    product: (A, B) -> A B.
  """
  kernels = flatten({name: tree for name, tree in params.items() if name != NAME})
  changes = flatten(params[NAME])
  for first in changes:
    kernel, is_a, _ = first.rpartition("/a/kernel")
    if is_a:
      name = f"{kernel}/kernel"
      whole = kernels[name]
      change = scale * product(changes[first], changes[f"{kernel}/b/kernel"])
      kernels[name] = (whole + change.reshape(whole.shape)).astype(whole.dtype)
  return nest(kernels)


def exact_product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
  """A B in float64."""
  return np.float64(a) @ np.float64(b)


def precise_product(a: jax.Array, b: jax.Array) -> jax.Array:
  """A B in float32, also where matmuls usually round to fewer bits."""
  return jnp.matmul(a, b, precision="highest")


@dataclasses.dataclass(frozen=True)
class LoRA(Parametrization):
  """An objective with low-rank changes of kernels.

  Attributes:
    objective: the objective of the run.
    settings: config.lora.
  """

  objective: Objective
  settings: object

  @classmethod
  def around(cls, objective: Objective, config: Config) -> "LoRA":
    """The objective, with LoRA as config.lora says."""
    return cls(objective, config.lora)

  @staticmethod
  def merged(params: dict, settings: dict) -> dict:
    """The model's parameters in float32, from the NumPy arrays of a run."""
    return merged(params, settings["alpha"] / settings["rank"], exact_product)

  @staticmethod
  def check(config: Config, shapes: dict[str, tuple[int, ...]]):
    """Refuses LoRA without weights or a head, and patterns and ranks that do not suit the model."""
    rank = config.lora.rank
    pattern = config.lora.kernels
    asked = f"config.lora.rank={rank}"
    if not config.objective.trains_head:
      raise ConfigError(
        f"{asked} fine-tunes a head with the model, and config.objective.kind="
        f"{config.objective.kind} trains none; leave it out."
      )
    if not config.init_from:
      raise ConfigError(
        f"{asked} changes given weights, and there are none; name them with "
        "--config.init_from=PATH, or leave it out."
      )
    if not is_regex(pattern):
      raise ConfigError(f"config.lora.kernels={shown(pattern)} is not a regex.")
    names = chosen(shapes, pattern)
    if not names:
      known = kernels_of_blocks(shapes)
      near = f"nearest: {similar(pattern, known)}" if known else "it has none"
      raise ConfigError(
        f"config.lora.kernels={shown(pattern)} matches no kernel in the blocks of "
        f"{config.model.name}; {near}."
      )
    for name in names:
      _, inputs, outputs = matrix_of(name, shapes[name])
      if rank > min(inputs, outputs):
        raise ConfigError(
          f"{asked} is more than the kernel {name} of {inputs} x {outputs} can have; the most is "
          f"{min(inputs, outputs)}."
        )
    check_trained(config.optimizer.trainable, names)

  @property
  def model(self):
    """The network."""
    return self.objective.model

  def init(self, key: jax.Array, image_size: Size) -> dict:
    """The parameters of the objective, and A and B of each kernel."""
    params = self.objective.init(key, image_size)
    shapes = {name: x.shape for name, x in flatten(params).items()}
    changes = {}
    for number, name in enumerate(chosen(shapes, self.settings.kernels)):
      draw = jax.random.fold_in(jax.random.fold_in(key, _STREAM), number)
      matrix = matrix_of(name, shapes[name])
      changes[name.removesuffix("/kernel")] = initial(draw, matrix, self.settings.rank)
    return params | {NAME: nest(changes)}

  def trainable(self, pattern: str) -> str:
    """The head, with its representation layer, what the objective adds, and all A and B.

    A pattern that is given takes their place.
    """
    if pattern == ALL:
      pattern = TRAINED
    return self.objective.trainable(pattern)

  def per_class(self) -> str:
    """The parameters of the objective with an element for each class."""
    return self.objective.per_class()

  def for_model(self, params: dict) -> dict:
    """The model's parameters on the devices, split as those of the run."""
    of_model = {name: tree for name, tree in params.items() if name != NAME}
    shardings = tuple((name, x.sharding) for name, x in flatten(of_model).items())
    return compiled(self.scale, shardings)(params)

  def begin(self, params: dict) -> dict:
    """The extra state of the objective."""
    return self.objective.begin(self._merged(params))

  def given(self) -> dict:
    """What the objective is given."""
    return self.objective.given()

  def seen(self, extra: dict, average: dict, progress: jax.Array) -> dict:
    """What the objective's loss gets."""
    return self.objective.seen(extra, self._merged(average), progress)

  def prepare(self, batch: dict, key: jax.Array) -> dict:
    """The batch of the objective."""
    return self.objective.prepare(batch, key)

  def loss(self, params: dict, extra: dict, batch: dict, key: jax.Array) -> Sums:
    """The objective's sums, with the changed kernels."""
    return self.objective.loss(self._merged(params), extra, batch, key)

  def held(self, changes: dict, progress: jax.Array) -> dict:
    """The changes that the objective holds."""
    return self.objective.held(changes, progress)

  def after_update(self, params: dict, extra: dict, statistics) -> dict:
    """The extra state of the objective."""
    return self.objective.after_update(self._merged(params), extra, statistics)

  def warning(self, metrics: Mapping[str, float]) -> str:
    """What the objective warns of."""
    return self.objective.warning(metrics)

  def training_flops(self, image_size: Size) -> int:
    """The objective's FLOPs, without those of A B."""
    return self.objective.training_flops(image_size)

  @property
  def scale(self) -> float:
    """The factor on A B."""
    return self.settings.alpha / self.settings.rank

  def _merged(self, params: dict) -> dict:
    return merged(params, self.scale, precise_product)


@functools.lru_cache(maxsize=1)
def compiled(scale: float, shardings: tuple) -> Callable:
  """`merged` on devices, with these pairs (name, sharding) of its results."""
  merge = functools.partial(merged, scale=scale, product=precise_product)
  return jax.jit(merge, out_shardings=nest(dict(shardings)))


def check_trained(trainable: str, names: list[str]):
  """Refuses a pattern of trained parameters that leaves out every A and B.

  Args:
    trainable: config.optimizer.trainable; one that is no regex is refused elsewhere.
    names: the kernels that change.

  Raises:
    ConfigError: nothing of LoRA is trained.
  """
  own = [f"{NAME}/{name.removesuffix('/kernel')}/{each}/kernel" for name in names for each in "ab"]
  if is_regex(trainable) and not any(re.fullmatch(trainable, name) for name in own):
    raise ConfigError(
      f"config.optimizer.trainable={shown(trainable)} matches nothing of LoRA, such as {own[0]}; "
      f"add |{NAME}/.*, or leave it out."
    )
