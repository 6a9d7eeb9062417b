"""Too little memory before the first step is one sentence, with what helps there."""

import jax
import pytest

from tests.training.test_plan import CONFIG
from vit_jax.config import RunError
from vit_jax.process.signals import StopRequest
from vit_jax.storage.saving import Checkpoints
from vit_jax.training import init_from, start, train
from vit_jax.training import run as runs


def too_little(*_, **__):
  raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes.")


@pytest.mark.parametrize(
  ("owner", "name"),
  [(start.states, "create"), (Checkpoints, "restore"), (init_from, "put")],
  ids=["a new state", "a checkpoint", "weights"],
)
def test_a_state_that_does_not_fit(tmp_path, monkeypatch, owner, name):
  monkeypatch.setattr(owner, name, too_little)
  made = runs.make(CONFIG, runs.open_data(CONFIG))
  weights = init_from.Initial(params={}, report="")
  with pytest.raises(RunError, match=r"at the start\. Split .*allocating 9 bytes") as refused:
    train.train(made, tmp_path, StopRequest(), weights)
  for useless in ("config.accumulation", "config.batch_size", "config.model.remat"):
    assert useless not in str(refused.value)
