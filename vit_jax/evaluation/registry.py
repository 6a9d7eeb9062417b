"""All kinds of evaluations, and what a figure's name tells of it."""

from collections.abc import Iterable, Mapping

from vit_jax.config import Config
from vit_jax.evaluation import classification, few_shot, nearest_neighbours
from vit_jax.evaluation.kind import Figure, Kind

KINDS: tuple[Kind, ...] = (classification.KIND, few_shot.KIND, nearest_neighbours.KIND)


def names(config: Config) -> list[str]:
  """The figures that every evaluation of a run will give, such as "val/top1"."""
  return [
    f"{name}/{figure}"
    for kind in KINDS
    for name, settings in kind.settings(config).items()
    for figure in kind.names(settings)
  ]


def figure(key: str) -> Figure | None:
  """What is called `key` ("val/top1"); None: no figure of an evaluation."""
  return found[1] if (found := _find(key)) else None


def curve(key: str) -> str:
  """The plot, "loss" or "accuracy", that a figure's curve is drawn in; "": it is not drawn."""
  found = figure(key)
  return found.curve if found else ""


def headlines(keys: Iterable[str]) -> list[str]:
  """Those that stand for their evaluations, in order."""
  return [key for key in keys if (found := figure(key)) and found.headline]


def in_words(figures: Mapping[str, float]) -> str:
  """Figures of evaluations on one line; other keys are passed over."""
  said = []
  for key in headlines(figures):
    name, _, own = key.rpartition("/")
    prefix = f"{name}/"
    of_name = {k.removeprefix(prefix): v for k, v in figures.items() if k.startswith(prefix)}
    kind, _ = _find(key)
    said.append(f"{name}: {kind.in_words(own, of_name)}")
  return "; ".join(said)


def _find(key: str) -> tuple[Kind, Figure] | None:
  evaluation, _, name = key.rpartition("/")
  if not evaluation:
    return None
  found = ((kind, each) for kind in KINDS for each in kind.figures if each.matches(name))
  return next(found, None)
