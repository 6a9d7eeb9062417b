"""Accuracy, loss and further scores of a head on a set of images, each counted exactly once."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

import numpy as np
from etils import epy

from vit_jax.config import AUTO, Config, ConfigError, Data, Dataset, Loss
from vit_jax.config.fields import MAX_PIXELS, Rule, Size, as_size, name_of_kind, setting, sides
from vit_jax.evaluation.spec import (
  EvalContext,
  EvaluationSpec,
  Evaluator,
  Metric,
  NothingCounts,
  Result,
  RunData,
  add,
  one_behind,
)
from vit_jax.process.errors import check_finite
from vit_jax.process.text import listed
from vit_jax.storage.paths import Path

with epy.lazy_imports():
  import jax
  import jax.numpy as jnp

  from vit_jax.data import batches as batches_of
  from vit_jax.data import by_label, crops, datasets, sources
  from vit_jax.data import classes as data_classes
  from vit_jax.evaluation import examples, precision_recall, results
  from vit_jax.learning import losses

FIVE = 5  # classes in top-5, which is reported only for more classes than that
ECE = "ece"  # the expected calibration error, if images have one label each
MACRO = ("macro_precision", "macro_recall", "macro_f1")  # likewise
MAP = "map"  # mean average precision, if images have any number of labels
HITS = ("top1", "top5")  # of the images that have a label
LABELLED = "labelled"  # their number, where others count in the loss too


def resized_as_all(resize: Size, size: Size) -> tuple[float, str]:
  """The multiple of the image size that config.data.evaluate_resize is, by the height."""
  return sides(resize)[0] / sides(size)[0], ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Classification(Dataset, EvaluationSpec):
  """Images that the head is scored on; a set with an empty source is left out."""

  metrics: ClassVar = (
    Metric("loss", curve="loss", smaller_is_better=True),
    Metric("top1", headline=True),
    Metric("top5"),
    Metric(ECE, curve="", smaller_is_better=True),
    *(Metric(name, curve="") for name in MACRO),
    Metric(MAP),
  )
  scores_head: ClassVar = True

  kind: str = name_of_kind("classification", "accuracy, loss and calibration of the head")
  resize: float = setting(
    AUTO,
    "config.data.evaluate_resize for this set, as a multiple of image_size, 1 or more; 0: resized "
    "straight to the square",
    auto=Rule(
      ("data.evaluate_resize", "data.image_size"),
      "config.data.evaluate_resize / image_size",
      resized_as_all,
    ),
    low=0.0,
    high=float(MAX_PIXELS),
  )
  classes: int = setting(
    0,
    "predict only among the classes that occur in the set, which must be this many; 0: among all",
    low=0,
    high=10**7,
  )

  def datasets(self) -> dict[str, Dataset]:
    """The set itself."""
    return {"": self}

  def names(self, config: Config) -> list[str]:
    """Top-5 only for more than five classes; means over classes only among all of the head."""
    known = self.classes or config.model.num_classes
    names = ["loss", "top1", *["top5"] * (known == AUTO or known > FIVE), ECE]
    if not self.classes:
      names += [*MACRO, *[MAP] * (config.loss.kind != "softmax")]
    return names

  def check(self, key: str, config: Config):
    """Checks that the image is resized to at least the square that is cut out of it."""
    size = config.data.image_size
    ratio = self.resize
    if ratio != AUTO and 0 != ratio < 1:
      raise ConfigError(
        f"{key}.resize={ratio} times the image size is smaller than the image size; make it 0, at "
        f"least 1, or {AUTO} for config.data.evaluate_resize."
      )
    if AUTO in (ratio, size):
      return
    side = max(sides(size))
    if round(ratio * side) > MAX_PIXELS:
      raise ConfigError(
        f"{key}.resize={ratio} times the image size is {round(ratio * side):,} pixels; make it at "
        f"most {MAX_PIXELS / side:g}, which is {MAX_PIXELS:,} pixels."
      )

  def resizing(self, data: Data) -> dict:
    """`resize` and `squeeze` of `images.evaluate_image` for the images of this set.

    `squeeze` is as in config.data if the size is the same as there, and False otherwise.
    """
    resize = data.evaluate_resize
    if self.resize != resized_as_all(resize, data.image_size)[0]:
      resize = as_size([round(self.resize * side) for side in sides(data.image_size)])
    return dict(resize=resize, squeeze=data.evaluate_squeeze and resize == data.evaluate_resize)

  def open(self, key: str, data: RunData) -> "LabelledSet":
    """Opens the set; refuses classes that are not trained, and images that are trained on."""
    scored = data.opener.labelled(key, self)
    if data.classes is not None:
      scored = data_classes.matched(scored, data.classes, "the training data")
    data.check_apart(scored)
    if self.classes:
      data.opener.progress.doing(f"reading labels of {key}")
    return LabelledSet(scored, counted_classes(scored, data.opener.threads))

  @staticmethod
  def in_words(_: str, metrics: Mapping[str, float]) -> str:
    """Accuracy, mean average precision, loss and the number of images."""
    names = {"top1": "top-1", "top5": "top-5", MAP: "mAP"}
    given = "".join(f"{name} {metrics[key]:.2%}, " for key, name in names.items() if key in metrics)
    images = metrics["examples"]
    labelled = metrics.get(LABELLED, images)
    some = f", {labelled:,} of them with a label" * (labelled != images)
    return f"{given}loss {metrics['loss']:.4f} on {images:,} images{some}"


@dataclasses.dataclass(frozen=True)
class LabelledSet(Evaluator):
  """A set of labelled images that the head is scored on.

  Attributes:
    head: the set.
    classes: the classes that a prediction may be, ascending; None: all.
  """

  head: "datasets.NamedDataset" = dataclasses.field()  # required here; `Evaluator` has a default
  classes: tuple[int, ...] | None

  def score(self, context: EvalContext, params) -> Result:
    """As `evaluate`; adds tables and a picture if each image has one label."""
    source = self.head.source
    data = context.reader.settings
    how = self.head.dataset.resizing(data)
    dataset = f"{datasets.in_words(self.head.dataset)} ({crops.resampling_in_words(data, **how)})"
    if source.multi_label:
      metrics, note = self._of_several_labels(context, params)
      return Result(metrics, note=note, dataset=dataset)
    if not context.detailed:
      return Result(self._evaluated(context, params), dataset=dataset)
    kept = results.Kept()
    metrics = self._evaluated(context, params, keep=kept.add)
    note = ""
    if self.classes is None:
      note = lacking(source.class_names, kept)

    def image(row: int) -> np.ndarray:
      prepare = batches_of.evaluation_transform(data, channels=context.reader.channels, **how)
      return prepare(source[row].image).pixels

    write = functools.partial(write_details, source=source, kept=kept, image=image)
    return Result(metrics, write, note=note, dataset=dataset)

  def _of_several_labels(self, context: EvalContext, params) -> tuple[dict[str, float], str]:
    """The metrics, with the mean average precision of a head with a sigmoid; and a note."""
    if context.loss.kind != "sigmoid" or self.classes is not None:
      return self._evaluated(context, params), ""
    if reason := self.lacks(MAP):
      return self._evaluated(context, params), f"no {MAP}: {reason}" * context.detailed
    source = self.head.source
    scores = precision_recall.Scores(len(source), len(source.class_names))
    metrics = self._evaluated(context, params, keep=scores.add, ranked=True)
    if HITS[0] in metrics:
      metrics[MAP] = scores.mean_average_precision()
    return metrics, ""

  def _evaluated(
    self, context: EvalContext, params, *, ranked: bool = False, **options
  ) -> dict[str, float]:
    """As `evaluate`, with its `options`; `ranked` as for `make_step`."""
    step = context.compiled(make_step, context.loss, static=("classes", "ranked", "decided"))
    decided = self.head.source.none_is_undecided
    step = functools.partial(step, classes=self.classes, ranked=ranked, decided=decided)
    how = self.head.dataset.resizing(context.reader.settings)
    with context.batches(context.reader.evaluation(self.head.source, **how)) as batches:
      return evaluate(step, params, batches, **options)

  def lacks(self, metric: str) -> str:
    """As `Evaluator.lacks`: some metrics depend on the labels, and one on memory."""
    source = self.head.source
    images = len(source)
    classes = len(source.class_names)
    if metric in (ECE, *MACRO) and source.multi_label:
      return "its images have any number of labels"
    if metric == MAP and not source.multi_label:
      return "its images have one label each"
    if metric == MAP and images * classes > precision_recall.MAX_SCORES:
      return (
        f"{images:,} images times {classes:,} classes are more than "
        f"{precision_recall.MAX_SCORES:,} scores, the most that are kept in memory"
      )
    return ""

  def resizing_in_words(self, data: Data) -> str:
    """As `Evaluator.resizing_in_words`."""
    how = self.head.dataset.resizing(data)
    if how["resize"] == data.evaluate_resize:
      return ""
    return crops.resampling_in_words(data, **how)

  def with_settings(self, settings: Classification) -> "LabelledSet":
    """As `Evaluator.with_settings`."""
    return dataclasses.replace(self, head=self.head._replace(dataset=settings))

  def of_head(self, names: Sequence[str]) -> "LabelledSet":
    """The set with its labels in the order of a head's classes; as `Evaluator.of_head`."""
    whose = "the head"
    chosen = self.classes
    head = data_classes.matched(self.head, names, whose)
    if chosen is not None:
      numbers = data_classes.places(self.head.source.class_names, names, whose)
      chosen = tuple(sorted(numbers[k] for k in chosen))
    return dataclasses.replace(self, head=head, classes=chosen)


def lacking(names: Sequence[str], kept: "results.Kept") -> str:
  """Names the classes without an image that counts; "" if there are none."""
  labels, _, _ = kept.joined()
  images = np.bincount(labels, minlength=len(names))
  without = [name for name, count in zip(names, images, strict=True) if not count]
  if not without:
    return ""
  return f"no image of: {listed(without)}"


def counted_classes(scored: "datasets.NamedDataset", threads: int) -> tuple[int, ...] | None:
  """The classes that a prediction of this set may be; None: all.

  They are the classes that occur in the set. ImageNet-A, for example, has images of 200 of
  ImageNet's classes, but the names of all 1,000.

  Raises:
    ConfigError: their number is not the one in the setting.
    SourceError: labels cannot be read.
  """
  key, dataset, source, _ = scored
  if not dataset.classes:
    return None
  result = by_label.occurring_classes(source, threads=threads)
  if len(result) != dataset.classes:
    raise ConfigError(
      f"{key}.classes={dataset.classes}, but {len(result)} classes occur in "
      f"{dataset.source}; give that number, or 0 for all classes."
    )
  return result


def make_step(model, loss: Loss):
  """The function (params, batch, classes, ranked, decided) -> (sums, rows).

  `classes` (static, ascending) are the classes that a prediction may be; None: all. An image counts
  if its mask is 1 and it has a label; for indicators and a sigmoid, whose target may be no class at
  all, also without one, unless `decided` (static) says that only images with a label are decided,
  as in ReaL. An image with several true labels is right if any of them is the first prediction
  (top-1) or among the first five (top-5); without a label it has no part in either.

  Sums over the images that count: loss, top1, examples, not_finite (images with a logit that is
  not finite), for more than five classes top5, and, if images count without a label, the number
  "labelled" of those that have one, scalars. If images have one label each, also "binned"
  (3, BINS): number, sum of probabilities and number of hits in each bin of probability; and, for
  all classes, "of_classes" (3, K) as `by_class`.
  Rows, one for each image: labels as in the batch, prediction (B,), its probability (B,),
  counts (B,) and, if `ranked` (static), logits (B, K) float32.
  """
  per_example = losses.of(loss)
  probabilities = losses.PROBABILITIES[loss.kind]

  def step(params, batch, classes=None, ranked=False, decided=False):
    pixels = batches_of.normalize(batch["image"], model.dtype)
    logits, _ = model.apply({"params": params}, pixels, train=False)
    target = losses.targets(batch["labels"], logits.shape[-1])
    labelled = batch["mask"] * target.any(axis=-1)
    one_each = batch["labels"].ndim == 1
    all_count = not (one_each or decided or losses.needs_a_label(loss, batch["labels"]))
    counts = batch["mask"] if all_count else labelled
    if classes is not None:
      logits = logits[:, np.array(classes)]
      target = target[:, np.array(classes)]
    values = per_example(logits, target)
    rank = rank_of_first(logits, target > 0)
    probability = probabilities(logits.astype(jnp.float32)).max(axis=-1)
    sums = dict(
      loss=jnp.sum(values * counts),
      top1=jnp.sum((rank == 0) * labelled),
      examples=jnp.sum(counts),
      not_finite=jnp.sum(~jnp.isfinite(logits).all(axis=-1) * counts),
    )
    if logits.shape[-1] > FIVE:
      sums["top5"] = jnp.sum((rank < FIVE) * labelled)
    if all_count:
      sums[LABELLED] = jnp.sum(labelled)
    prediction = logits.argmax(axis=-1)
    if one_each:
      sums["binned"] = binned(probability, rank == 0, counts)
      if classes is None:
        sums["of_classes"] = by_class(target, prediction, counts)
    if classes is not None:
      prediction = jnp.array(classes)[prediction]
    rows = dict(prediction=prediction, probability=probability, counts=counts)
    if ranked:
      rows["logits"] = logits.astype(jnp.float32)
    return sums, rows | dict(labels=batch["labels"])

  return step


def rank_of_first(logits: "jax.Array", true: "jax.Array") -> "jax.Array":
  """The number of classes before the first true one, (B,); equal logits are in order of class.

  Without a true class it is the number of all classes. Logits must be finite.

  A top-k would be slower: for a batch that is split over a mesh, XLA's CPU compiler sorts all
  classes.
  """
  candidates = jnp.where(true, logits, -jnp.inf)
  value = jnp.max(candidates, axis=-1, keepdims=True)
  first = jnp.argmax(candidates, axis=-1, keepdims=True)
  lower = jnp.arange(logits.shape[-1]) < first
  return jnp.sum((logits > value) | ((logits == value) & lower), axis=-1)


def binned(probability: "jax.Array", hits: "jax.Array", counts: "jax.Array") -> "jax.Array":
  """Sums over the images in each bin ((m - 1) / M, m / M]: number, probabilities and hits."""
  bins = jnp.clip(jnp.ceil(probability * results.BINS).astype(jnp.int32) - 1, 0, results.BINS - 1)
  member = (bins == jnp.arange(results.BINS)[:, None]) * counts
  return jnp.stack([member.sum(-1), (member * probability).sum(-1), (member * hits).sum(-1)])


def by_class(target: "jax.Array", prediction: "jax.Array", counts: "jax.Array") -> "jax.Array":
  """Numbers of images by class, (3, K): with this label, with this prediction, with both."""
  predicted = jax.nn.one_hot(prediction, target.shape[-1])
  members = (target, predicted, target * predicted)
  return jnp.stack([jnp.sum(member * counts[:, None], axis=0) for member in members])


def evaluate(step, params, batches, *, keep=lambda rows: None) -> dict[str, float]:
  """The means over all images that count, by name as in `make_step`, and their number.

  Accuracies are means over the images with a label, whose number is given if others count too;
  without any there are no accuracies.

  With one label per image, also "ece" and, unless classes are left out, `precision_recall.macro`.
  The expected calibration error is the mean over images of |accuracy - probability| in their bin.
  Source: Guo et al., "On Calibration of Modern Neural Networks", 2017, Section 2.

  The counts of a batch are exact in float32. The host adds them up in float64, one batch behind
  the devices, which so always have the next batch.

  Args:
    step: jitted `make_step(...)`.
    params: parameters.
    batches: batches on the devices.
    keep: called with the rows of each batch, in order.

  Raises:
    NothingCounts: no image counts.
    NotFinite: logits are not finite.
  """
  totals = {}
  for sums, rows in one_behind(step(params, batch) for batch in batches):
    add(totals, sums)
    keep(rows)
  count = totals["examples"]
  if not count:
    raise NothingCounts("none of its images has a label; name another label_key or set.")
  check_finite(totals["not_finite"], count, "the logits")
  numbers = {"examples": int(count)}
  if LABELLED in totals:
    numbers[LABELLED] = int(totals[LABELLED])
  result = {"loss": float(totals["loss"] / count)}
  if labelled := numbers.get(LABELLED, count):
    result |= {name: float(totals[name] / labelled) for name in HITS if name in totals}
  if "binned" in totals:
    _, probabilities, hits = totals["binned"]
    result[ECE] = float(np.abs(hits - probabilities).sum() / count)
  if "of_classes" in totals:
    result |= precision_recall.macro(*totals["of_classes"])
  return result | numbers


def write_details(
  folder: Path,
  *,
  source: "sources.Source",
  kept: "results.Kept",
  image: Callable[[int], np.ndarray],
):
  """Writes predictions, accuracies by class, the confusion matrix and some images."""
  known = results.Details(results.distinct(source.class_names), *kept.joined(), source.name)
  results.write_predictions(folder, known)
  rows = examples.chosen(known.labels, known.predictions, known.probabilities)
  examples.write(folder / examples.IMAGES, examples.read_images(rows, image))
