"""The cases that need a GPU have settings that a model can be made of."""

import pytest

from vit_jax import models
from vit_jax.config import Model
from vit_jax.extras.benchmarks import accelerator


@pytest.mark.parametrize("case", [*accelerator.cases(), *accelerator.small_cases()], ids=str)
def test_every_case_has_a_model(case):
  module = models.configured(Model(name=case.model, num_classes=10, **case.settings()))
  assert module.depth == (case.depth or models.create(case.model).depth)
