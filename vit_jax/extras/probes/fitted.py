"""A classifier that was fitted to features."""

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np

Features = Mapping[str, np.ndarray]  # as `extraction.features` makes them


@dataclasses.dataclass(frozen=True)
class Fitted:
  """A classifier on features.

  Attributes:
    scores: features of N images -> (N, K); the class with the largest is predicted.
    logits: whether the scores are logits.
    temperature: what divides logits to calibrate them; None: not known.
    chosen: the settings that were chosen on held-out images, in words; "": none.
  """

  scores: Callable[[Features], np.ndarray]
  logits: bool = False
  temperature: float | None = None
  chosen: str = ""
