"""What a step costs, as classification tells it to a run."""

from vit_jax import models
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
