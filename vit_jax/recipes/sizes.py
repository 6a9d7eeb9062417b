"""Image sizes that fit the patches of a model."""

from vit_jax.config import ConfigError


def largest_side(model: str, most: int) -> int:
  """The largest side of square images, up to `most` pixels, that the model's patches tile.

  If `most` is 0, for a size that is not known yet, the result is 0 too.

  Raises:
    ConfigError: there is no such model, or its patches are larger.
  """
  from vit_jax import models  # slow, and users of the tables alone do not need it
  from vit_jax.models import requirements

  try:
    module = models.create(model)
  except ValueError as error:
    raise ConfigError(f"The recipe's model cannot be used: {error}") from error
  return requirements.largest_side(module, most, model) if most else 0
