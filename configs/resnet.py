r"""A ResNet of Figure 3 on ImageNet or ImageNet-21k, with Adam (Section 4.1).

  python -m vit_jax.main --config=configs/resnet.py:MODEL,DATASET

MODEL: such as R50x1 or R152x2. DATASET: imagenet (300 epochs: 93,835 steps) or imagenet21k
(90 epochs: 272,461 steps). JFT-300M has recipes of its own, such as configs/r50x1_jft.py.
Table 3 has no row for these runs. Section 4.1 trains ResNets and ViTs with the same set-up, so the
settings are those of the ViTs on the same dataset, without dropout; this is our choice.
configs/resnet_sgd.py has the settings of BiT.
ImageNet-21k is not in TFDS: give --config.data.train.source and --config.model.num_classes of your
own. The paper gives the results, 5-shot and fine-tuned ImageNet, only in the figure. Not run here:
it needs a pod.
"""

from vit_jax.config import ConfigError, to_config_dict
from vit_jax.recipes import choice, pretrain, resnet

SETTINGS = {
  "imagenet": dict(epochs=300, learning_rate=3e-3, resnet=True),
  "imagenet21k": dict(epochs=90, learning_rate=1e-3, resnet=True),
}


def get_config(argument="R50x1,imagenet"):
  """One ResNet on one dataset."""
  model, comma, dataset = argument.partition(",")
  if not comma:
    raise ConfigError(f"The recipe's argument {argument!r} is not MODEL,DATASET.")
  dataset = choice(dataset, *SETTINGS)
  return to_config_dict(pretrain(resnet(model), dataset, **SETTINGS[dataset]))
