r"""A ResNet pre-trained by BiT's recipe with SGD (Table 7, Appendix D.1).

  python -m vit_jax.main --config=configs/resnet_sgd.py:MODEL,DATASET

MODEL: R50x1 and R152x2 are in Table 7. DATASET: jft (7 epochs: 517,822 steps), imagenet21k
(90 epochs: 272,461 steps) or imagenet (90 epochs: 28,151 steps).
From BiT: SGD with momentum 0.9, learning rate 0.48 (0.03 for 256 images) after 5,000 steps of
warm-up, L2 of 1e-4, no clipping; divided by ten after 30, 60 and 80 of 90 epochs, on JFT after 10,
23, 30 and 37 of 40. Our choice: on JFT the 7 epochs of Table 7's runs with Adam, and the drops at
the same fractions of them.
The paper's results on JFT after fine-tuning (Table 7): ImageNet 78.24 (R50x1) and 84.37 (R152x2).
JFT-300M is not public, and ImageNet-21k not in TFDS: give --config.data.train.source and
--config.model.num_classes of your own. Not run here: it needs a pod.
"""

from vit_jax.config import ConfigError, to_config_dict
from vit_jax.recipes import LENGTHS_OF_BIT, choice, pretrain_as_bit, resnet
from vit_jax.recipes.following import unchanged


def get_config(argument="R50x1,jft", replace=unchanged):
  """One ResNet on one dataset."""
  model, comma, dataset = argument.partition(",")
  if not comma:
    raise ConfigError(f"The recipe's argument {argument!r} is not MODEL,DATASET.")
  dataset = choice(dataset, *LENGTHS_OF_BIT)
  return to_config_dict(pretrain_as_bit(resnet(model), dataset, replace))
