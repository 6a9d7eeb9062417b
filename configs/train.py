r"""Training from scratch on your own images.

  python -m vit_jax.main --config=configs/train.py:DATA[,MODEL][,image_key=NAME][,label_key=NAME]

DATA: a folder with a folder of images for each class, or any other source of images (docs/data.md).
Folders called train and val (or validation, or test) inside are recognised; otherwise a random
tenth of each class is held out and scored. MODEL, such as ViT-S/16, replaces the model that is
chosen by the number and the size of the images; it may also be a name of timm or Transformers. In
tables of images, image_key and label_key name the columns of images and labels that are not found.
The table at the start says what was chosen, and from what; every setting can be given instead
(docs/settings.md), and --write_recipe=mine.py writes all of them as a recipe to keep and to edit.
"""

from vit_jax.config import to_config_dict
from vit_jax.recipes import own_images
from vit_jax.recipes.following import unchanged
from vit_jax.recipes.loading import data_and_model, keys_of


def get_config(argument="digits", replace=unchanged):
  """Settings for these images."""
  rest, keys = keys_of(argument)
  return to_config_dict(own_images.train(*data_and_model(rest), replace=replace, **keys))
