r"""Fine-tuning on one task of VTAB-1k with 1,000 images (Table 9; Table 4; Appendix B.1.1).

  python -m vit_jax.main --config=configs/vtab.py:MODEL,TASK --config.init_from=PATH
  vit-jax vtab --model MODEL --source PATH

The second command runs all 19 tasks and prints their table. MODEL: the model of the weights, such
as ViT-L/16. TASK: caltech101, cifar-100, dtd, flowers102, pets, sun397, svhn, camelyon, eurosat,
resisc45, retinopathy, clevr-count, clevr-dist, dmlab, dspr-loc, dspr-ori, kitti-dist, snorb-azim or
snorb-elev. TFDS must prepare the data (vit-jax prepare build NAME).
2,500 steps at 384 px (378 if patches have 14 px), the same settings for every task. Training images
are cropped and flipped unless that would change the label: docs/decisions/vtab-images.md lists the
tasks. MODEL,TASK,development trains on 800 of the images and scores the other 200;
MODEL,TASK,smoke does the same in 4 steps at 64 px, to check that weights and data are complete.
Not run here at full size: the weights and data are large.
"""

from vit_jax.config import ConfigError, to_config_dict
from vit_jax.extras.experiments.vtab_finetuning import PARTS, finetune_on_vtab
from vit_jax.extras.sources.vtab_tasks import TASKS
from vit_jax.recipes import choice
from vit_jax.recipes.following import unchanged


def get_config(argument="ViT-L/16,cifar-100", replace=unchanged):
  """One task for one model."""
  fields = argument.split(",")
  if len(fields) not in (2, 3):
    raise ConfigError(
      f"The recipe's argument {argument!r} is not MODEL,TASK[,development] or MODEL,TASK,smoke."
    )
  model, task, part = [*fields, "all"][:3]
  part = choice(part, *PARTS)
  task = choice(task, *TASKS)
  return to_config_dict(finetune_on_vtab(model, task, part=part, replace=replace))
