r"""Fine-tuning by the BiT-HyperRule: the number and size of the images decide all settings.

  python -m vit_jax.main --config=configs/hyperrule.py:MODEL,TASK --config.init_from=PATH

MODEL: the model of the weights, such as R50x1 or R152x2; ViTs are possible too.
TASK: imagenet (20,000 steps, 480 px), cifar100 or cifar10 (10,000 steps, 128 px), pets or flowers
(500 steps, 480 px). MixUp on all but pets and flowers.
MODEL,TASK,development holds out the paper's part of the training split and scores it.
MODEL,imagenet,real scores ReaL's labels too.
Your own images: --config=configs/hyperrule.py:MODEL,EXAMPLES,SIZE with the number of training
images and "small" (an area below 96 x 96 pixels) or "large", and
--config.data.train.source=folder:DIR --config.evaluate.test.source=folder:DIR2
--config.model.num_classes=K.
Not run here at full size: the weights are large.
"""

from vit_jax.config import ConfigError, to_config_dict
from vit_jax.recipes import RESOLUTIONS, TASKS, choice, hyperrule, of_task, options


def get_config(argument="R50x1,cifar10"):
  """One model on a task of Table 4, or on a number of small or large images."""
  fields = argument.split(",")
  if len(fields) < 2:
    raise ConfigError(
      f"The recipe's argument {argument!r} is neither MODEL,TASK[,development][,real] nor "
      "MODEL,EXAMPLES,SIZE."
    )
  model = fields[0]
  if len(fields) == 2 or fields[1] in TASKS:
    task, extra = choice(fields[1], *TASKS), options(fields[2:], "development", "real")
    part = "development" if "development" in extra else "all"
    return to_config_dict(of_task(model, task, part=part, real="real" in extra))
  if not fields[1].isdecimal() or not int(fields[1]):
    raise ConfigError(f"The recipe's EXAMPLES {fields[1]!r} is not a number of training images.")
  images = choice(",".join(fields[2:]), *RESOLUTIONS)
  return to_config_dict(hyperrule(model, examples=int(fields[1]), images=images))
