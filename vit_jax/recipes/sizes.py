"""Image sizes that fit the patches of a model."""

from vit_jax.config import ConfigError


def largest_side(model: str, most: int) -> int:
  """The largest side of square images, up to `most` pixels, that the model's patches tile.

  Raises:
    ConfigError: there is no such model.
  """
  from vit_jax import models  # slow, and users of the tables alone do not need it

  try:
    module = models.create(model)
  except ValueError as error:
    raise ConfigError(f"The recipe's model cannot be used: {error}") from error
  stride = 1 if isinstance(module, models.ResNet) else module.stride()
  return most // stride * stride
