r"""Shapes of Figure 8 (Appendix D.2) on JFT-300M, 7 epochs: one or all dimensions of a ViT scaled.

  python -m vit_jax.main --config=configs/vit_shape_jft.py:NAME \
    --config.data.train.source=tfds:DATASET --config.data.train.split=train \
    --config.data.train.label_key=labels --config.model.num_classes=K

NAME is base, or the scaled dimension: depth, width, mlp, patch or all.
From the paper: the base with 8 layers, D 1024, MLP 2048 and patch 32, and the scaled dimensions.
Our choice: one step of scaling, which doubles the dimension (halves the patch); 16 heads in the
base, and 64 dimensions per head in all shapes; the settings of Table 3's row for ViT-B.
At 303 M images: 517,822 steps each. `vit-jax cost --config=configs/vit_shape_jft.py:NAME`
prints the costs. The paper gives its results, 5-shot ImageNet, only in the figure.
JFT-300M is not public: give any folder or TFDS dataset of your own. Not run here: it needs a pod.
"""

import dataclasses

from vit_jax.config import to_config_dict
from vit_jax.recipes import choice, pretrain

# Only the patch size of ViT-L/32 is used; all other dimensions are replaced.
BASE = dict(name="ViT-L/32", depth=8, width=1024, mlp_dim=2048, heads=16)
DEPTH = dict(depth=16)
WIDTH = dict(width=2048, heads=32)
MLP = dict(mlp_dim=4096)
PATCH = dict(name="ViT-L/16")

SHAPES = {
  "base": BASE,
  "depth": BASE | DEPTH,
  "width": BASE | WIDTH,
  "mlp": BASE | MLP,
  "patch": BASE | PATCH,
  "all": BASE | DEPTH | WIDTH | MLP | PATCH,
}


def get_config(shape="base"):
  """One shape of Figure 8."""
  fields = SHAPES[choice(shape, *SHAPES)]
  recipe = pretrain(fields["name"], "jft", epochs=7, learning_rate=8e-4)
  return to_config_dict(
    dataclasses.replace(recipe, model=dataclasses.replace(recipe.model, **fields))
  )
