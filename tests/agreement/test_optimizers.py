"""Our update rules beside torch's, several steps on the same gradients.

Needs torch (the extra `agreement`); skipped, with this reason, where it is not there.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from vit_jax.learning import optim
from vit_jax.learning.optimizers.adam import Adam
from vit_jax.learning.optimizers.sgd import SGD

STEPS, RATE = 20, 0.1
ALL = ((".*", 1.0),)  # torch decays every parameter

CASES = {
  "sgd": (SGD(), "SGD", dict(momentum=0.9)),
  "sgd with L2": (
    SGD(decay_kind="coupled", weight_decay=0.05),
    "SGD",
    dict(momentum=0.9, weight_decay=0.05),
  ),
  "adamw": (Adam(weight_decay=0.05), "AdamW", dict(weight_decay=0.05)),
  "adam with L2": (
    Adam(decay_kind="coupled", weight_decay=0.05),
    "Adam",
    dict(weight_decay=0.05),
  ),
}


@pytest.mark.parametrize("clip", [0.0, 1.0])
@pytest.mark.parametrize("case", CASES)
def test_steps_are_those_of_torch(case, clip):
  torch = pytest.importorskip("torch", reason="torch is not installed (extra `agreement`)")
  ours, theirs, options = CASES[case]
  rng = np.random.default_rng(0)
  first = rng.normal(size=(5, 3)).astype(np.float32)
  gradients = rng.normal(size=(STEPS, 5, 3)).astype(np.float32)

  parameter = torch.nn.Parameter(torch.from_numpy(first.copy()))
  optimizer = getattr(torch.optim, theirs)([parameter], lr=RATE, **options)
  chain = optim.make(dataclasses.replace(ours, clip_norm=clip, decay_rules=ALL))
  params = {"kernel": jnp.asarray(first)}
  state = chain.init(params)
  for gradient in gradients:
    parameter.grad = torch.from_numpy(gradient.copy())
    if clip:
      torch.nn.utils.clip_grad_norm_([parameter], clip)
    optimizer.step()
    gradient = {"kernel": jnp.asarray(gradient)}
    given = dict(learning_rate=RATE, grad_norm=optax.tree.norm(gradient))
    changes, state = chain.update(gradient, state, params, **given)
    params = jax.tree.map(jnp.add, params, changes)
  np.testing.assert_allclose(params["kernel"], parameter.detach().numpy(), rtol=1e-4, atol=1e-5)
