"""A second objective, small and without labels, to test properties of all objectives."""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp

from vit_jax.learning.objective import Sums


@dataclasses.dataclass(frozen=True)
class HiddenChannel:
  """Hides one colour channel of each image; the model predicts its mean from the other two."""

  needs_labels: ClassVar[bool] = False
  trains_head: ClassVar[bool] = False
  representation: ClassVar[str] = "pre_logits"

  model: object  # of the config; not used
  dtype: jnp.dtype = jnp.float32

  def init(self, key, image_size):
    shape = image_size * image_size * 3, 3
    return {"teller": {"kernel": 0.02 * jax.random.normal(key, shape), "bias": jnp.zeros(3)}}

  def prepare(self, batch, key):
    hidden = jax.random.randint(key, (len(batch["mask"]),), 0, 3)
    return batch | {"hidden": hidden}

  def loss(self, params, batch, key):
    del key
    images = batch["image"].astype(jnp.float32) / 255
    hidden = jax.nn.one_hot(batch["hidden"], 3)
    seen = images * (1 - hidden[:, None, None, :])
    kernel, bias = params["teller"]["kernel"], params["teller"]["bias"]
    flat = seen.reshape(len(seen), -1).astype(self.dtype)
    told = (flat @ kernel.astype(self.dtype)).astype(jnp.float32) + bias
    error = jnp.sum((told - images.mean(axis=(1, 2))) * hidden, axis=-1)
    counts, red = batch["mask"], batch["mask"] * hidden[:, 0]
    metrics = {
      "error": (jnp.sum(counts * jnp.abs(error)), counts.sum()),
      "error_red": (jnp.sum(red * jnp.abs(error)), red.sum()),
    }
    return Sums(jnp.sum(counts * error**2), counts.sum(), metrics)

  def training_flops(self, image_size):
    return 6 * image_size * image_size * 3 * 3
