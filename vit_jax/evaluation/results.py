"""The results of evaluations in a workdir, as files and in words."""

import collections
from collections.abc import Mapping, Sequence

from vit_jax.data import tiles
from vit_jax.evaluation import catalogue
from vit_jax.evaluation.details import MAX_BYTES
from vit_jax.evaluation.spec import Result
from vit_jax.process import json_text
from vit_jax.process.text import one_line
from vit_jax.storage import files, metrics_log, workdir
from vit_jax.storage.paths import Path
from vit_jax.weights import average

METRICS = "metrics.json"
DATASET = "dataset"  # beside the metrics of a set: its images, in words


def write_details(
  folder: Path, scored: list[tuple[str, Result]], origin: dict[str, int | str]
) -> Path | None:
  """Writes metrics, tables, plots and pictures of an evaluation to a folder of its own.

  Args:
    folder: the workdir.
    scored: the results.
    origin: which parameters were scored, the first entries of each metrics.json.

  Returns:
    WORKDIR/evaluation/NUMBER, with a folder for each set; None if no set has details.

  Raises:
    OSError: the folder cannot be written to.
  """
  detailed = [(name, each) for name, each in scored if each.write or each.pictures]
  if not detailed:
    return None

  def fill(partial):
    for name, result in detailed:
      write_set(partial / name, result, origin)

  return workdir.write_details(folder, fill)


def write_set(folder: Path, result: Result, origin: dict[str, int | str]):
  """Writes the details of one set into a new folder; arguments as for `write_details`."""
  files.make_folder(folder)
  origin = origin | {DATASET: result.dataset}
  files.write_text(folder / METRICS, json_text.written(origin | result.metrics) + "\n")
  if result.write:
    result.write(folder)
  for name, picture in result.pictures.items():
    files.write_bytes(folder / f"{name}.png", tiles.png(picture))


def notes(scored: list[tuple[str, Result]]) -> str:
  """The notes on the metrics, one line for each evaluation that has one."""
  return "".join("\n" + one_line(f"{name}: {each.note}") for name, each in scored if each.note)


def recorded(folder: Path) -> dict:
  """The metrics.json in the folder of a set, {} if it is not there.

  Raises:
    OSError, ValueError: it cannot be read.
  """
  path = folder / METRICS
  if not files.is_file(path):
    return {}
  try:
    return json_text.with_numbers(files.read_json(path, most=MAX_BYTES))
  except ValueError as error:
    raise ValueError(f"{path} does not hold metrics of an evaluation ({error})") from error


def whose(name: str, origin: Mapping[str, object]) -> str:
  """The name of a set, and `origin_in_words` if that is known."""
  return ": ".join(filter(None, [name, origin_in_words(origin)]))


def origin_in_words(origin: Mapping[str, object]) -> str:
  """Names the images and parameters behind metrics, such as "digits test, step 40"."""
  words = [str(origin.get(DATASET, ""))]
  words += [f"{key} {origin[key]}" for key in ("step", "weights") if key in origin]
  if origin.get(catalogue.AVERAGE) is True:
    words.append(average.in_words(True))
  return ", ".join(filter(None, words))


def steps_in(folder: Path) -> frozenset[int]:
  """The steps whose evaluation is already in metrics.jsonl, with all sets."""
  made = evaluations_in(folder)
  return frozenset(line["step"] for line in made if not metrics_log.unscored(line))


def unscored_in_words(lines: Sequence[Mapping]) -> list[str]:
  """A sentence for each set that could not be scored, by the lines of metrics.jsonl."""
  steps = collections.defaultdict(list)
  for line in lines:
    for name in metrics_log.unscored(line):
      steps[name].append(line["step"])
  return [
    f"Evaluation set {name!r} could not be scored {len(of)} time(s), last after step {of[-1]:,}."
    for name, of in steps.items()
  ]


def evaluations_in(folder: Path) -> list[dict]:
  """The lines of metrics.jsonl that hold metrics of an evaluation."""
  lines = metrics_log.read_lines(folder)
  keys = set(catalogue.headlines({key for line in lines for key in line}))
  return [line for line in lines if not keys.isdisjoint(line)]
