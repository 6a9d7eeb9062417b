r"""Fine-tuning of any of the paper's models (Table 4; Section 3.2; Appendix B.1.1).

  python -m vit_jax.main --config=configs/finetune.py:MODEL,TASK --config.init_from=PATH

MODEL: the model of the weights, such as ViT-B/16, R50x1+ViT-B/16 or R50x1.
TASK: imagenet (20,000 steps), cifar100 or cifar10 (10,000 steps), pets or flowers (500 steps).
Images have 384 px (378 if patches have 14 px). On imagenet, ViT-L/16 has 512 px and ViT-H/14 has
518 px, with a moving average of the parameters, as in Table 2. Table 6 also has these two at 384
and 378 px without the average: --config.data.image_size=384 --config.optimizer.ema=0.0.
MODEL,TASK,development holds out the paper's part of the training split (1, 2 or 10 per cent) and
scores it instead of the test split. Use it to choose the learning rate; the paper's grids are in
vit_jax/recipes/finetuning.py.
Your own images: --config.data.train.source=folder:DIR --config.data.train.split= and the same for
--config.data.evaluate.test, with --config.model.num_classes=K. Not run here: the weights are large.
"""

from vit_jax.config import ConfigError, to_config_dict
from vit_jax.recipes import TASKS, choice, finetune


def get_config(argument="ViT-B/16,cifar10"):
  """A row of Table 4 for one model."""
  fields = argument.split(",")
  if len(fields) not in (2, 3):
    raise ConfigError(f"The recipe's argument {argument!r} is not MODEL,TASK[,development].")
  model, task, part = [*fields, "all"][:3]
  return to_config_dict(
    finetune(model, choice(task, *TASKS), part=choice(part, "all", "development"))
  )
