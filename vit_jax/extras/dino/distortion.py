"""The colours, blur and solarisation of DINO's crops."""

import dataclasses
import functools
from collections.abc import Callable, Sequence

import numpy as np
from PIL import Image

from vit_jax.config import Augmentation, Size
from vit_jax.config.fields import name_of_kind
from vit_jax.data.augmentation import operations as o

JITTER = 0.8  # probability
STRENGTHS = {o.brightness: 0.4, o.contrast: 0.4, o.color: 0.2}
HUE = 0.1  # of the colour circle, to each side
GREY = 0.2  # probability
LEAST = 0.05  # of the largest radius of the blur
SOLARIZED_FROM = 128


@dataclasses.dataclass(frozen=True)
class Distortion(Augmentation):
  """Colour jitter, grey, blur and solarisation, each with its probability, in this order.

  The jitter changes brightness, contrast, colour and hue in a random order.

  Source: Caron et al. (2021), Section 3.2, which takes them from Grill et al., "Bootstrap your own
  latent" (2020, arXiv 2006.07733), Appendix B; strengths by the authors' code.

  Attributes:
    blur, solarize: probabilities.
    radius: the largest of the blur, pixels.
  """

  moves_pixels = False

  kind: str = name_of_kind("distortion", "colour jitter, grey, blur and solarisation")
  blur: float = 0.5
  solarize: float = 0.0
  radius: float = 2.0

  def draw(self, rng: np.random.Generator, size: Size) -> Sequence[Callable]:
    """The operations of an image."""
    jittered, grey, blurred, solarized = rng.random(4)
    *changes, hue_change = 2 * rng.random(4) - 1
    order = rng.random(4).argsort()
    place = rng.random()
    operations = []
    if jittered < JITTER:
      jitters = [
        functools.partial(operation, factor=float(1 + strength * change))
        for (operation, strength), change in zip(STRENGTHS.items(), changes, strict=True)
      ]
      jitters.append(functools.partial(hue, turn=float(HUE * hue_change)))
      operations += [jitters[i] for i in order]
    if grey < GREY:
      operations.append(o.grey)
    if blurred < self.blur:
      radius = self.radius * float(LEAST + (1 - LEAST) * place)
      operations.append(functools.partial(o.blur, radius=radius))
    if solarized < self.solarize:
      operations.append(functools.partial(o.solarize, threshold=SOLARIZED_FROM))
    return operations


def hue(pixels: np.ndarray, turn: float) -> np.ndarray:
  """Turns the hue by this fraction of the colour circle, as torchvision does: by whole levels."""
  hues, *others = Image.fromarray(pixels).convert("HSV").split()
  turned = (np.asarray(hues, np.int16) + int(turn * 255)) % 256
  channels = [Image.fromarray(turned.astype(np.uint8)), *others]
  return np.asarray(Image.merge("HSV", channels).convert("RGB"))
