r"""Fine-tuning of any of the paper's models (Table 4; Section 3.2; Appendix B.1.1).

  python -m vit_jax.main --config=configs/finetune.py:MODEL,TASK --config.init_from=PATH

MODEL: the model of the weights, such as ViT-B/16, R50x1+ViT-B/16 or R50x1. TASK alone takes the
model from the weights, which may be a run of your own; images then have 384 px, and parameters no
average, whatever the model.
TASK: imagenet (20,000 steps), cifar100 or cifar10 (10,000 steps), pets or flowers (500 steps).
Images have 384 px (378 if patches have 14 px). On imagenet, ViT-L/16 has 512 px and ViT-H/14 has
518 px, with a moving average of the parameters, as in Table 2. Table 6 also has these two at 384
and 378 px without the average: --config.data.image_size=384 --config.optimizer.ema=0.0.
Training images are resized to 448 px and cropped to 384 at random (in that proportion for other
sizes), as in the paper. MODEL,TASK,inception takes crops of 5 to 100% of the area instead, as in
the code that the authors released: use it to compare with the numbers of that code.
MODEL,TASK,development holds out the paper's part of the training split (1, 2 or 10 per cent) and
scores it instead of the test split. Use it to choose the learning rate; the paper's grids are in
vit_jax/recipes/finetuning.py.
MODEL,imagenet,real scores ReaL's labels too (tfds:imagenet2012_real).
WEIGHTS,DATA fine-tunes a file or folder of weights, or a run, on your own images, at the size of
the weights: DATA is a folder with a folder of images for each class, or any other source
(docs/data.md), and ,label_key=NAME behind it names its column of labels; see configs/train.py.
Not run here: the weights are large.
"""

from vit_jax.config import AUTO, ConfigError, to_config_dict
from vit_jax.recipes import TASKS, choice, finetune, options, own_images
from vit_jax.recipes.following import unchanged
from vit_jax.recipes.loading import keys_of, weights_and_data


def get_config(argument="ViT-B/16,cifar10", replace=unchanged):
  """A row of Table 4 for one model."""
  data, keys = keys_of(argument)
  first, *rest = argument.split(",")
  if own := weights_and_data(data, named=not TASKS.keys().isdisjoint([first, *rest[:1]])):
    return to_config_dict(own_images.finetune(*own, replace=replace, **keys))
  model, *rest = [AUTO, first, *rest] if first in TASKS else [first, *rest]
  if not rest:
    raise ConfigError(
      f"The recipe's argument {argument!r} is not [MODEL,]TASK[,development][,inception][,real]."
    )
  task, *words = rest
  task, extra = choice(task, *TASKS), options(words, "development", "inception", "real")
  return to_config_dict(
    finetune(
      model,
      task,
      part="development" if "development" in extra else "all",
      crops="inception" if "inception" in extra else "paper",
      real="real" in extra,
      replace=replace,
    )
  )
