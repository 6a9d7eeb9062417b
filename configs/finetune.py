r"""Fine-tuning of any of the paper's models (Table 4; Section 3.2; Appendix B.1.1).

  python -m vit_jax.main --config=configs/finetune.py:MODEL,TASK --config.init_from=PATH

MODEL: a name such as ViT-B/16, R50x1+ViT-B/16 or R50x1, the one that the weights belong to.
TASK: imagenet (20,000 steps), cifar100 or cifar10 (10,000 steps), pets or flowers (500 steps).
Images have 384 px (378 where patches have 14); ViT-L/16 and ViT-H/14 on imagenet 512 and 518, with
a moving average of the parameters, as in Table 2. Table 6 has these too at 384 and 378 without it:
--config.data.image_size=384 --config.optimizer.ema=0.0.
MODEL,TASK,development keeps the paper's part of the training split back (1, 2 or 10 per cent) and
scores that in place of the test split: for choosing the learning rate, the paper's grid of which is
in vit_jax/recipes/finetuning.py.
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
