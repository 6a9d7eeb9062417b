"""A second objective, small and without labels, to test properties of all objectives."""

import dataclasses

import jax
import jax.numpy as jnp

from vit_jax.config import ObjectiveSettings
from vit_jax.config.fields import setting
from vit_jax.learning.objective import Objective, Sums

LINE = "tests.learning.hidden_channel:Hidden"  # for the registry


@dataclasses.dataclass(frozen=True)
class Hidden(ObjectiveSettings):
  """The mean of a hidden colour channel."""

  kind: str = setting("hidden_channel", "the mean of a hidden colour channel")
  scale: float = setting(1.0, "factor of the loss", low=0.0, high=10.0)

  def configured(self, config, model):
    del config
    return HiddenChannel(model, scale=self.scale)


@dataclasses.dataclass(frozen=True)
class HiddenChannel(Objective):
  """Hides one colour channel of each image; the model predicts its mean from the other two."""

  model: object  # of the config; not used
  dtype: jnp.dtype = jnp.float32
  scale: float = 1.0

  def init(self, key, image_size):
    shape = image_size * image_size * 3, 3
    return {"teller": {"kernel": 0.02 * jax.random.normal(key, shape), "bias": jnp.zeros(3)}}

  def prepare(self, batch, key):
    hidden = jax.random.randint(key, (len(batch["mask"]),), 0, 3)
    return batch | {"hidden": hidden}

  def loss(self, params, extra, batch, key):
    del extra, key
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
    return Sums(self.scale * jnp.sum(counts * error**2), counts.sum(), metrics)

  def training_flops(self, image_size):
    return 6 * image_size * image_size * 3 * 3
