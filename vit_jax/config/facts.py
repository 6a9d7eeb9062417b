"""The facts that rules of settings read beside other settings, with their meanings.

The caller of `config.resolve.resolve` passes the facts that are known: each is a function of the
settings, called when a rule needs it.
"""

import dataclasses
from collections.abc import Sequence

FACTS = {
  "images": "number of training images",
  "side": "median of the smaller sides of a sample of the training images, pixels",
  "scored_at_once": "images in a batch of an evaluation alone; 0: it is a training",
  "labels": "`Labels` of the training data",
  "card": "how images are prepared for the weights in init_from, `vit_jax.weights.card.Card`",
  "architecture": "config.Model of the weights in init_from, all fields given",
  "representation": "the features that the weights are trained for: pre_logits or patches",
  "fields": "what config.model.name stands for: a value of each field that its model has",
  "largest_side": "pixels -> the largest side up to them that the patches of config.model tile",
  "attention": "the library that computes the attention of config.model, cudnn or xla",
  "device": "one of those that compute, `jax.Device`",
  "devices": "number of devices",
  "parts": "(the fewest parts of a batch that fit into memory, the reckoning in words)",
}

OF_DEVICES = ("attention", "device", "devices", "parts")


@dataclasses.dataclass(frozen=True)
class Labels:
  """The labels of training data.

  Attributes:
    class_names: their names; () without labels.
    multi_label: whether an image has any number of labels.
  """

  class_names: Sequence[str] = ()
  multi_label: bool = False
