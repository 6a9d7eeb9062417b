"""All kinds of evaluations, and the properties of a figure by its name."""

from collections.abc import Iterable, Mapping

from vit_jax.config import Config
from vit_jax.evaluation import classification, few_shot, nearest_neighbours, reconstruction
from vit_jax.evaluation.kind import Figure, Kind
from vit_jax.weights import average

AVERAGE = "average"  # 1 beside figures of a moving average of the parameters
KINDS: tuple[Kind, ...] = (
  classification.KIND,
  few_shot.KIND,
  nearest_neighbours.KIND,
  reconstruction.KIND,
)


def names(config: Config) -> list[str]:
  """The figures that every evaluation of a run will give, such as "val/top1".

  With config.model.num_classes=0, those that it may give; the training data tells the number.
  """
  return [
    f"{name}/{figure}"
    for kind in KINDS
    for name, settings in kind.settings(config).items()
    for figure in kind.names(settings, config.model.num_classes)
  ]


def figure(key: str) -> Figure | None:
  """The figure with the name `key`, such as "val/top1"; None: no evaluation gives it."""
  return found[1] if (found := _find(key)) else None


def curve(key: str) -> str:
  """The plot that shows a figure's curve, "loss" or "accuracy"; "": none."""
  found = figure(key)
  return found.curve if found else ""


def headlines(keys: Iterable[str]) -> list[str]:
  """The keys of headline figures, in order."""
  return [key for key in keys if (found := figure(key)) and found.headline]


def in_words(figures: Mapping[str, float]) -> str:
  """Figures of evaluations on one line, and whether they are of an average; ignores other keys."""
  said = []
  for key in headlines(figures):
    name, _, own = key.rpartition("/")
    prefix = f"{name}/"
    of_name = {k.removeprefix(prefix): v for k, v in figures.items() if k.startswith(prefix)}
    kind, _ = _find(key)
    said.append(f"{name}: {kind.in_words(own, of_name)}")
  whose = f" ({average.in_words(True)})" if said and figures.get(AVERAGE) else ""
  return "; ".join(said) + whose


def _find(key: str) -> tuple[Kind, Figure] | None:
  evaluation, _, name = key.rpartition("/")
  if not evaluation:
    return None
  found = ((kind, each) for kind in KINDS for each in kind.figures if each.matches(name))
  return next(found, None)
