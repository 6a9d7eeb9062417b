"""Draws a few examples to show, of all classes."""

from collections.abc import Hashable, Sequence

import numpy as np

from vit_jax.data.sources.base import Source

AMONG = 512  # examples whose labels are looked at


def of_all_classes(labels: Sequence[Hashable], count: int, seed: int = 0) -> list[int]:
  """Places of `count` examples, or of all: from each class in turn, drawn by a seed, by class."""
  order = np.random.default_rng(seed).permutation(len(labels)).tolist()
  turns, seen = [], {}
  for place in order:
    turn = seen[labels[place]] = seen.get(labels[place], -1) + 1
    turns.append((turn, place))
  chosen = [place for _, place in sorted(turns, key=lambda one: one[0])[:count]]
  first = {label: i for i, label in reversed(list(enumerate(labels)))}
  return sorted(chosen, key=lambda place: (first[labels[place]], place))


def of_source(source: Source, count: int, seed: int = 0) -> list[int]:
  """Places of `count` examples of a source, as in `of_all_classes`; reads labels alone."""
  among = min(len(source), AMONG)
  some = np.random.default_rng(seed).choice(len(source), among, replace=False).tolist()
  return [some[i] for i in of_all_classes([source.labels(i) for i in some], count, seed)]
