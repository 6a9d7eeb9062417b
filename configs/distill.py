r"""Distillation: a model that learns from labels and from the predictions of a trained one.

  python -m vit_jax.main --config=configs/distill.py:TEACHER,DATA

TEACHER: weights in any format, or a run, of the classes of the data. DATA: as for configs/train.py.
Training images have the teacher's size and are resized as its are. Half of the loss is that of the
labels, half the cross-entropy with the teacher's most probable class, as in DeiT (Touvron et al.,
2021, equation 3); --config.objective.target=soft takes the teacher's probabilities
(docs/fine-tuning.md). The student suits the number and the size of the images;
--config.model.name=ViT-Ti/16 gives another, and deit_tiny_distilled_patch16_224 one with a
distillation token.
"""

import dataclasses

from vit_jax.config import ConfigError, to_config_dict
from vit_jax.extras.distillation.objective import Settings, teachers
from vit_jax.recipes import own_images
from vit_jax.recipes.following import unchanged
from vit_jax.recipes.loading import keys_of, weights_and_data
from vit_jax.storage import files


def get_config(argument="", replace=unchanged):
  """A student of this teacher on these images."""
  if not argument:
    raise ConfigError("The recipe needs an argument; give distill:TEACHER,DATA.")
  rest, keys = keys_of(argument)
  pair = weights_and_data(rest, named=False)
  if not pair:
    why = ": neither of the two exists" if "," in rest else ""
    raise ConfigError(f"The recipe's argument {argument!r} is not TEACHER,DATA{why}.")
  place, spec = pair
  files.check_weights(place)  # before the libraries that read them are loaded
  objective = Settings(teacher=place)

  def with_objective(config):
    return replace(dataclasses.replace(config, objective=objective))

  config = own_images.train(spec, replace=with_objective, **keys)
  card = teachers.read(place).loaded.card
  asked = {"resampling": card.resampling}
  if card.image_size:
    asked["image_size"] = card.image_size
  return to_config_dict(
    dataclasses.replace(
      config,
      data=dataclasses.replace(config.data, **asked),
      objective=objective,
      origins=(*config.origins, *((f"data.{key}", "the teacher") for key in asked)),
    )
  )
