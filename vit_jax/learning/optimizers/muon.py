"""Muon for the matrices of the blocks, Adam for all other parameters."""

import dataclasses
import math
from typing import ClassVar

from vit_jax.config import Optimizer
from vit_jax.config.fields import name_of_kind, setting


@dataclasses.dataclass(frozen=True)
class Muon(Optimizer):
  """u = rms sqrt(max(n, m)) O, with O the nearest orthogonal matrix, about, to the momentum (n, m).

  With rms = 0.2 updates are as large as AdamW's, so Muon and Adam share one learning rate and one
  weight decay. Embeddings, norms, biases and the head get Adam.

  Momentum and gradient, which Nesterov's rule adds, are corrected for their bias, as in optax but
  not in Jordan's code and torch.optim.Muon. So the gradient weighs 1.46 times as much beside the
  momentum as in those at the second step, and 1.004 times at the 50th.

  The kernels of queries, keys, values and the attention's output are matrices (D, D); each block of
  stacked ones is a matrix of its own.

  Source: Jordan et al., "Muon", 2024 (five steps of Newton-Schulz, Nesterov's momentum); Liu et
  al., "Muon is scalable for LLM training", 2025, equation 4, for the factor.
  """

  kind: str = name_of_kind("muon", "Muon for the blocks' matrices, Adam for the rest")
  momentum: float = setting(0.95, "decay of Muon's momentum", low=0.0, high=0.999999)
  rms: float = setting(0.2, "root mean square of a square matrix's update", low=1e-3, high=10.0)
  beta1: float = setting(0.9, "decay of Adam's first moment", low=0.0, high=0.999999)
  beta2: float = setting(0.999, "decay of Adam's second moment", low=0.0, high=0.999999)
  epsilon: float = setting(1e-8, "added to the root of that moment", low=1e-15, high=1.0)

  moment: ClassVar[str] = "mu"
  rated_as_adam: ClassVar[bool] = True
  elementwise: ClassVar[bool] = False
  needs_blocks: ClassVar[bool] = True

  def precondition(self):
    """Muon and Adam, each for its parameters."""
    import optax  # imports JAX, which settings alone do not need

    muon = optax.chain(
      optax.contrib.scale_by_muon(beta=self.momentum, weight_dimension_numbers=matrices),
      optax.stateless(lambda updates, _: by_size(updates, self.rms)),
    )
    adam = optax.scale_by_adam(self.beta1, self.beta2, self.epsilon)
    return optax.partition({"matrices": muon, "others": adam}, labels)


def labels(params):
  """The group of each parameter: "matrices" for the kernels of blocks, "others" for the rest."""
  import jax

  from vit_jax.learning.optim import block_of
  from vit_jax.storage.tree import name_of

  def label(path, x):
    name = name_of(path)
    if name.endswith("/kernel") and block_of(name, x) is not None:
      return "matrices"
    return "others"

  return jax.tree_util.tree_map_with_path(label, params)


def by_size(updates, rms: float):
  """The orthogonal updates (n, m), multiplied by rms sqrt(max(n, m))."""
  import jax

  def scaled(u, axes):
    sides = (math.prod(u.shape[i] for i in group) for group in axes)
    return rms * max(sides) ** 0.5 * u

  return jax.tree.map(scaled, updates, matrices(updates))


def matrices(params):
  """The axes of rows and of columns for each kernel of a block, by `stacking.matrix_axes`."""
  import jax
  import optax

  from vit_jax.models.stacking import matrix_axes
  from vit_jax.storage.tree import name_of

  def axes(path, x):
    rows, columns = matrix_axes(name_of(path), x.ndim)
    of_rows = tuple(range(rows, columns))
    of_columns = tuple(range(columns, x.ndim))
    return optax.contrib.MuonDimensionNumbers(of_rows, of_columns)

  return jax.tree_util.tree_map_with_path(axes, params)
