r"""R152x1 on JFT-300M, 7 epochs (Table 3).

  python -m vit_jax.main --config=configs/r152x1_jft.py \
    --config.data.train.source=tfds:NAME --config.data.train.split=train \
    --config.data.train.label_key=labels --config.model.num_classes=K

At 303 M images: 517,822 steps.
The paper's results after fine-tuning: ImageNet 81.88, ReaL 87.96, CIFAR-100 90.22 (Table 6).
JFT-300M is not public: give any folder or TFDS dataset of your own. Not run here: it needs a pod.
"""

from vit_jax.config import to_config_dict
from vit_jax.recipes import choice, pretrain


def get_config(epochs="7"):
  """The row of Table 3."""
  return to_config_dict(
    pretrain(
      "R152x1",
      "jft",
      epochs=choice(epochs, 7),
      learning_rate=6e-4,
      decay="linear",
      weight_decay=0.1,
      dropout=0.0,
    )
  )
