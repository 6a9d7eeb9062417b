r"""Pre-training on a random subset of JFT-300M (Figure 4).

  python -m vit_jax.main --config=configs/jft_subsets.py:MODEL,SUBSET \
    --config.data.train.source=tfds:NAME --config.data.train.split=train \
    --config.data.train.label_key=labels --config.model.num_classes=K

MODEL: ViT-b/32, ViT-B/32, ViT-L/32, ViT-L/16, R50x1 or R152x2. SUBSET: 9M, 30M, 90M or all.
From the paper: the settings of the whole dataset (Table 3) for every subset, no other
regularisation, and early stopping: the best checkpoint by 5-shot accuracy on ImageNet is kept.
So every run has 517,822 steps, 7 epochs of the 303 M images and 236 of the 9 M.
Our choice: an evaluation every 2,500 steps, about one epoch of the smallest subset, and no end
before the last step (config.early_stopping.patience); ViT-b takes the settings of ViT-B.
Needs `vit-jax prepare build imagenet2012` for the 5-shot accuracy. The paper gives its
results only in the figure. JFT-300M is not public: give any folder or TFDS dataset of your own, as
large as the subset at least. Not run here: it needs a pod.
"""

import dataclasses

from vit_jax.config import ConfigError, Dataset, Duration, EarlyStopping, to_config_dict
from vit_jax.evaluation.few_shot import FewShot
from vit_jax.recipes import choice, pretrain

ROWS = {
  "ViT-b/32": dict(learning_rate=8e-4),
  "ViT-B/32": dict(learning_rate=8e-4),
  "ViT-L/32": dict(learning_rate=6e-4),
  "ViT-L/16": dict(learning_rate=4e-4),
  "R50x1": dict(learning_rate=1e-3, resnet=True),
  "R152x2": dict(learning_rate=6e-4, resnet=True),
}
SUBSETS = {"9M": 9_000_000, "30M": 30_000_000, "90M": 90_000_000, "all": 0}
STEPS = 517_822


def get_config(argument="ViT-B/32,9M"):
  """One model on one subset."""
  model, comma, subset = argument.partition(",")
  if not comma:
    raise ConfigError(f"The recipe's argument {argument!r} is not MODEL,SUBSET.")
  model, images = choice(model, *ROWS), SUBSETS[choice(subset, *SUBSETS)]
  base = pretrain(model, "jft", epochs=7, **ROWS[model])
  probe = FewShot(
    train=Dataset("tfds:imagenet2012", "train"),
    test=Dataset("tfds:imagenet2012", "validation"),
    shots=(5,),
    seeds=1,
  )
  return to_config_dict(
    dataclasses.replace(
      base,
      duration=Duration(steps=STEPS),
      evaluate_every=Duration(steps=2500),
      data=dataclasses.replace(base.data, train=Dataset(subset=images)),
      evaluate={**base.evaluate, "imagenet": probe},
      early_stopping=EarlyStopping(metric="imagenet/5shot"),
    )
  )
