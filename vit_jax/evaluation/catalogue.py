"""The evaluations that a run asks for, and the metrics by name."""

from collections.abc import Iterable, Mapping

from etils import epy

from vit_jax.config import Config
from vit_jax.evaluation.spec import EvaluationSpec, Metric
from vit_jax.registry import EVALUATIONS

with epy.lazy_imports():
  from vit_jax.weights import card

# Not evaluations: the metrics of training are called so.
OF_TRAINING = ("training", "batch", "data", "time")
AVERAGE = "average"  # 1 beside metrics of a moving average of the parameters


def asked_for(config: Config) -> dict[str, EvaluationSpec]:
  """The evaluations that have all their sources, by name, in the order of their kinds."""
  kinds = list(EVALUATIONS)
  specs = [(name, spec) for name, spec in config.evaluate.items() if spec.given()]
  return dict(sorted(specs, key=lambda item: kinds.index(item[1].kind)))


def names(config: Config) -> list[str]:
  """The metrics of every evaluation of a run, such as "val/top1", as `EvaluationSpec.names`."""
  specs = asked_for(config).items()
  return [f"{name}/{metric}" for name, spec in specs for metric in spec.names(config)]


def metric(key: str) -> Metric | None:
  """The metric with the name `key`, such as "val/top1"; None: no evaluation gives it."""
  found = _find(key)
  if found is None:
    return None
  _, known = found
  return known


def curve(key: str) -> str:
  """The plot that shows a metric's curve, "loss" or "accuracy"; "": none."""
  known = metric(key)
  if known is None:
    return ""
  return known.curve


def headlines(keys: Iterable[str]) -> list[str]:
  """The keys of headline metrics, in order."""
  return [key for key in keys if _is_headline(key)]


def leading(keys: Iterable[str]) -> list[str]:
  """The keys that texts begin with: `headlines`, and the first metric of a set without them."""
  keys = list(keys)
  found = headlines(keys)
  for key in keys:
    if metric(key) is not None and _evaluation(key) not in map(_evaluation, found):
      found.append(key)
  return found


def in_words(metrics: Mapping[str, float]) -> str:
  """Metrics of evaluations on one line, and whether an average was scored; ignores other keys."""
  texts = []
  for key in leading(metrics):
    name = _evaluation(key)
    prefix = f"{name}/"
    of_name = {k.removeprefix(prefix): v for k, v in metrics.items() if k.startswith(prefix)}
    spec, _ = _find(key)
    texts.append(f"{name}: {spec.in_words(key.removeprefix(prefix), of_name)}")
  text = "; ".join(texts)
  if texts and metrics.get(AVERAGE):
    text += f" ({card.parameters_in_words(True)})"
  return text


def _evaluation(key: str) -> str:
  return key.rpartition("/")[0]


def _is_headline(key: str) -> bool:
  known = metric(key)
  return known is not None and known.headline


def _find(key: str) -> tuple[type[EvaluationSpec], Metric] | None:
  evaluation, _, name = key.rpartition("/")
  if evaluation in ("", *OF_TRAINING):
    return None
  known = ((spec, each) for spec in EVALUATIONS.values() for each in spec.metrics)
  return next(((spec, each) for spec, each in known if each.matches(name)), None)
