"""The result of a probe as values for JSON, as text, and as a page."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from vit_jax.extras.probes.probe import Outcome
from vit_jax.extras.report import document
from vit_jax.extras.report.document import Section, Table, TableCell
from vit_jax.process import text
from vit_jax.storage import files
from vit_jax.storage.paths import Path

JSON = "probe.json"
PAGE = "probe.html"
ACCURACY = "accuracy"
MIOU = "miou"
# {score: (head of its column, format)}; the rest are means over seeds.
COLUMNS = {
  MIOU: ("mIoU", ".3f"),
  "nll": ("NLL", ".3f"),
  "brier": ("Brier", ".3f"),
  "ece": ("ECE", ".3f"),
  "temperature": ("T", ".2f"),
  "nll_scaled": ("NLL/T", ".3f"),
  "ece_scaled": ("ECE/T", ".3f"),
}
MEANINGS = (
  "The accuracy is the mean over seeds and its standard deviation (divided by n); a seed draws the "
  "held-out tenth, or the shots, and the initial weights. NLL is the negative log-likelihood in "
  "nats, Brier the Brier score (0 to 2), ECE the expected calibration error in 15 bins. T is the "
  "temperature that suits the held-out tenth, and none if a seed predicts every image of it "
  "rightly; NLL/T and ECE/T are the scores after a division by it."
)
OF_MASKS = (
  "The accuracy is that of pixels, and mIoU the mean intersection over union of the classes: means "
  "over seeds, and the standard deviation (divided by n). A seed draws the initial weights and the "
  "order of images."
)
OF_CORRUPTIONS = "Accuracy on corrupted test images, mean over five severities, of the first seed"


@dataclasses.dataclass(frozen=True)
class Result:
  """What a probe found.

  Attributes:
    facts: what was probed, by name: text or numbers.
    outcomes: the classifiers.
    rank: RankMe of the training features.
    left_out: what was not computed and why, in words.
    commands: {what it does: command} for comparison.
    corrupted: {corruption: {severity: {classifier: accuracy}}}; {}: not asked for.
  """

  facts: Mapping[str, str | int]
  outcomes: Sequence[Outcome]
  rank: float
  left_out: Sequence[str]
  commands: Mapping[str, str]
  corrupted: Mapping[str, Mapping[int, Mapping[str, float]]]


def values(result: Result) -> dict[str, Any]:
  """The content of the JSON file."""
  return {
    **{name.replace(" ", "_"): value for name, value in result.facts.items()},
    "rank_me": result.rank,
    "probes": [of_outcome(each) for each in result.outcomes],
    "left_out": list(result.left_out),
    "corruptions": {
      name: {str(severity): dict(scores) for severity, scores in each.items()}
      for name, each in result.corrupted.items()
    },
    "compare_with": dict(result.commands),
  }


def of_outcome(each: Outcome) -> dict[str, Any]:
  """A classifier: the mean and the deviation of each score, and those of each seed."""
  return {
    "name": each.name,
    "mean": {key: each.mean(key) for key in each.names()},
    "deviation": {key: each.deviation(key) for key in each.names()},
    "seeds": [dict(scores) for scores in each.scores],
    "chosen": list(filter(None, each.chosen)),
  }


def in_words(result: Result) -> str:
  """The tables for a terminal."""
  lines = [text.one_line(f"{name}: {value}") for name, value in result.facts.items()]
  lines.append(f"RankMe: {result.rank:.1f}")
  head, *rows = scored_rows(result.outcomes)
  lines += ["", text.aligned([head, *rows])]
  lines += [f"Left out: {text.one_line(words)}." for words in result.left_out]
  if result.corrupted:
    lines += ["", f"{OF_CORRUPTIONS}:", text.aligned(corrupted_rows(result.corrupted))]
  if result.commands:
    lines += ["", *(f"{what}: {command}" for what, command in result.commands.items())]
  return "\n".join(lines)


def scored_rows(outcomes: Sequence[Outcome]) -> list[list[str]]:
  """A head, and a row for each classifier; columns that no classifier has are left out."""
  keys = [key for key in COLUMNS if any(key in each.names() for each in outcomes)]
  head = ["probe", ACCURACY, *(COLUMNS[key][0] for key in keys)]
  rows = [[each.name, accuracy_in_words(each), *cells(each, keys)] for each in outcomes]
  return [head, *rows]


def accuracy_in_words(each: Outcome) -> str:
  """Such as "93.1% +- 0.4%"; without the deviation for one seed."""
  deviation = each.deviation(ACCURACY)
  words = f"{each.mean(ACCURACY):.1%}"
  if deviation is None:
    return words
  return f"{words} +- {deviation:.1%}"


def cells(each: Outcome, keys: Sequence[str]) -> list[str]:
  """The means of the other scores of a classifier; empty where it has none."""
  means = [(each.mean(key), COLUMNS[key][1]) for key in keys]
  return ["" if mean is None else format(mean, form) for mean, form in means]


def corrupted_rows(corrupted: Mapping) -> list[list[str]]:
  """A head, a row for each corruption with its mean over severities, and their mean."""
  names = list(next(iter(next(iter(corrupted.values())).values())))
  means = [
    [np.mean([scores[name] for scores in each.values()]) for name in names]
    for each in corrupted.values()
  ]
  rows = [*zip(corrupted, means, strict=True), ("mean", np.mean(means, axis=0))]
  return [["corruption", *names], *([name, *(f"{x:.1%}" for x in row)] for name, row in rows)]


def page(result: Result) -> str:
  """The page; it needs no network."""
  lead = document.Lead(facts=[(name, str(value)) for name, value in result.facts.items()])
  meanings = MEANINGS
  if any(MIOU in each.names() for each in result.outcomes):
    meanings = OF_MASKS
  probes = Section(
    "Probes",
    words=[meanings, *(f"Left out: {words}." for words in result.left_out)],
    tables=[table(result), choices(result.outcomes)],
  )
  features = Section("Features", words=[f"RankMe of the training features: {result.rank:.1f}"])
  compare = Section(
    "Compare with fine-tuning and with training from scratch",
    commands=[f"# {what}\n{command}" for what, command in result.commands.items()],
    boxed=True,
  )
  title = f"Probe of {result.facts['weights']}"
  return document.html(title, lead, [probes, corruptions(result.corrupted), features, compare])


def table(result: Result) -> Table:
  """The scores of all classifiers."""
  head, *rows = scored_rows(result.outcomes)
  shown = [
    (name, [TableCell(words, each.mean(ACCURACY), each.mean(ACCURACY)), *others])
    for each, (name, words, *others) in zip(result.outcomes, rows, strict=True)
  ]
  return Table("Scores on the test images", head, shown)


def choices(outcomes: Sequence[Outcome]) -> Table:
  """The settings that the held-out tenths chose."""
  rows = [
    (f"{each.name}, seed {seed}", [words])
    for each in outcomes
    for seed, words in enumerate(each.chosen)
    if words
  ]
  return Table("Chosen on held-out tenths of the training images", ["probe", "chosen"], rows)


def corruptions(corrupted: Mapping) -> Section:
  """The accuracy on corrupted test images."""
  if not corrupted:
    return Section("")
  head, *rows = corrupted_rows(corrupted)
  return Section("Corruptions", tables=[Table(OF_CORRUPTIONS, head, [(n, x) for n, *x in rows])])


def write(result: Result, folder: Path) -> list[Path]:
  """Writes probe.json and probe.html.

  Raises:
    OSError: they cannot be written.
  """
  files.write_text(folder / JSON, text.json_text(values(result)) + "\n")
  files.write_text(folder / PAGE, page(result))
  return [folder / JSON, folder / PAGE]
