"""Pictures of predictions: images that an evaluation kept, the right ones first."""

from collections.abc import Mapping, Sequence

from vit_jax.evaluation import examples, results
from vit_jax.extras.report import headline
from vit_jax.extras.report.document import Picture
from vit_jax.extras.report.run import RecordedRun
from vit_jax.extras.report.scored_set import ScoredSet
from vit_jax.extras.report.thumbnails import png


def set_of(run: RecordedRun) -> ScoredSet | None:
  """The newest evaluation that kept images: that of the headline, or else any; None without one."""
  name = headline.evaluation_of(headline.key_of(run))
  kept = [scored for scored in run.sets if rows_of(scored)]
  return min(kept, key=lambda scored: scored.name != name, default=None)


def rows_of(scored: ScoredSet) -> list[int]:
  """The rows of the kept images, at most `examples.KEPT`: the right predictions first."""
  wrong = scored.labels != scored.predictions
  rows = [row for row in scored.images if row < len(wrong)]
  return sorted(rows, key=lambda row: bool(wrong[row]))[-examples.KEPT :]


def pictures(scored: ScoredSet, overlays: Mapping[int, bytes]) -> list[Picture]:
  """A picture for each of `rows_of`, with its prediction; images that cannot be read are left out.

  Args:
    scored: the evaluation.
    overlays: JPEG files by row, shown in place of the images.
  """
  made = [picture(scored, row, overlays.get(row, b"")) for row in rows_of(scored)]
  return [one for one in made if one.data]


def picture(scored: ScoredSet, row: int, overlay: bytes) -> Picture:
  """The overlay, or else the image itself, with its prediction."""
  label = scored.labels[row]
  prediction = scored.predictions[row]
  mark = "right"
  caption = f"{prediction}"
  if label != prediction:
    mark = "wrong"
    caption = f"{prediction}, not {label}"
  alt = f"An image of {label}, predicted {prediction} ({scored.probabilities[row]:.1%})."
  if overlay:
    return Picture(overlay, "jpeg", alt, caption, small=True, mark=mark)
  return Picture(png(scored.images[row]), "png", alt, caption, small=True, mark=mark)


def note(scored: ScoredSet, shown: Sequence[Picture], colours: str) -> str:
  """Says which images are shown, what predicted them, and what their `colours` mean."""
  wrong = sum(one.mark == "wrong" for one in shown)
  worst = len(examples.worst(scored.labels, scored.predictions, scored.probabilities))
  words = f"{len(shown)} images of {results.whose(scored.name, scored.metrics)}"
  if wrong:
    words += f"; {min(wrong, worst)} of them are the worst mistakes"
  return f"{words}. {colours}".strip()
