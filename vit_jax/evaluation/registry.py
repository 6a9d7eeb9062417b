"""All kinds of evaluations, and the properties of a metric by its name."""

from collections.abc import Iterable, Mapping

from vit_jax.config import Config
from vit_jax.evaluation import classification, few_shot, nearest_neighbours, reconstruction
from vit_jax.evaluation.spec import EvaluationSpec, Metric
from vit_jax.weights import average

AVERAGE = "average"  # 1 beside metrics of a moving average of the parameters
SPECS: tuple[EvaluationSpec, ...] = (
  classification.SPEC,
  few_shot.SPEC,
  nearest_neighbours.SPEC,
  reconstruction.SPEC,
)


def names(config: Config) -> list[str]:
  """The metrics that every evaluation of a run will give, such as "val/top1".

  With config.model.num_classes=0, those that it may give; the training data tells the number.
  """
  return [
    f"{name}/{metric}"
    for kind in SPECS
    for name, settings in kind.settings(config).items()
    for metric in kind.names(settings, config.model.num_classes)
  ]


def metric(key: str) -> Metric | None:
  """The metric with the name `key`, such as "val/top1"; None: no evaluation gives it."""
  return found[1] if (found := _find(key)) else None


def curve(key: str) -> str:
  """The plot that shows a metric's curve, "loss" or "accuracy"; "": none."""
  found = metric(key)
  return found.curve if found else ""


def headlines(keys: Iterable[str]) -> list[str]:
  """The keys of headline metrics, in order."""
  return [key for key in keys if (found := metric(key)) and found.headline]


def in_words(metrics: Mapping[str, float]) -> str:
  """Figures of evaluations on one line, and whether they are of an average; ignores other keys."""
  said = []
  for key in headlines(metrics):
    name, _, own = key.rpartition("/")
    prefix = f"{name}/"
    of_name = {k.removeprefix(prefix): v for k, v in metrics.items() if k.startswith(prefix)}
    kind, _ = _find(key)
    said.append(f"{name}: {kind.in_words(own, of_name)}")
  whose = f" ({average.in_words(True)})" if said and metrics.get(AVERAGE) else ""
  return "; ".join(said) + whose


def _find(key: str) -> tuple[EvaluationSpec, Metric] | None:
  evaluation, _, name = key.rpartition("/")
  if not evaluation:
    return None
  found = ((kind, each) for kind in SPECS for each in kind.metrics if each.matches(name))
  return next(found, None)
