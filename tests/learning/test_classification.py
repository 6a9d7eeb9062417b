"""Which images count in the loss, and what a step costs, as classification tells it to a run."""

import numpy as np
import pytest

from tests.learning import steps
from tests.learning.test_mixup import KERNEL, Linear
from vit_jax import models
from vit_jax.config import Loss
from vit_jax.learning.classification import Classification

TINY = dict(name="ViT-Ti/4", depth=1, width=8, mlp_dim=12, heads=2, num_classes=3)


def test_training_flops():
  """Multiply-adds by hand for 2 x 2 patches of 4 x 4 pixels; forward, and twice back."""
  tokens = 4 + 1
  embedding = 4 * (4 * 4 * 3) * 8
  attention = 4 * tokens * 8 * 8 + 2 * tokens**2 * 8
  mlp = 2 * tokens * 8 * 12
  head = 8 * 3
  expected = 6 * (embedding + attention + mlp + head)
  assert Classification(models.create(**TINY)).training_flops(8) == expected


def sums(kind, one):
  objective = Classification(Linear(), Loss(kind=kind, label_smoothing=0.1))
  return objective.loss({"kernel": KERNEL}, {}, one, None)


@pytest.mark.parametrize("kind", ["softmax", "sigmoid"])
def test_images_without_a_label_count_for_the_sigmoid_alone(kind):
  """It says of each class that it is not there; the softmax has nothing to say."""
  one = steps.batch(side=2, broken=(2, 9))
  labels = np.eye(5, dtype=np.uint8)[one["labels"]]
  labels[::3] = 0
  one |= {"labels": labels}
  labelled = one | {"mask": one["mask"] * labels.any(axis=-1)}
  counting = labelled if kind == "softmax" else one
  found = sums(kind, one)
  assert found.count == counting["mask"].sum()
  np.testing.assert_allclose(found.loss, sums(kind, counting).loss, rtol=1e-6)
  partners = {"partner_labels": labels[::-1], "share": np.full(16, 0.25, np.float32)}
  mixed = sums(kind, one | partners | {"partner_image": one["image"]})
  share = 0.25 * labels.any(axis=-1) + 0.75 * labels[::-1].any(axis=-1)
  expected = one["mask"] * (share if kind == "softmax" else 1)
  np.testing.assert_allclose(mixed.count, expected.sum(), rtol=1e-6)
