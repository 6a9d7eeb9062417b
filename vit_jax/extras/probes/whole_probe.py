"""A probe from weights and images to its result."""

from collections.abc import Callable

from vit_jax.config import ConfigError, in_pixels
from vit_jax.data.images import RGB
from vit_jax.extras.probes import cache, corrupted, extraction, few_shot, neighbours, probe, scores
from vit_jax.extras.probes.masks import MaskedParts
from vit_jax.extras.probes.parts import Parts, open_parts, with_training
from vit_jax.extras.probes.request import STEPS, Request
from vit_jax.extras.probes.results import Result
from vit_jax.inference import layers
from vit_jax.inference.export import left_out as left_out_of
from vit_jax.inference.model import LoadedModel, read_model
from vit_jax.process import text
from vit_jax.process.progress import NoProgress, Progress
from vit_jax.weights.card import parameters_in_words, preparation_in_words


def run(request: Request, progress: Progress | NoProgress, say: Callable[[str], None]) -> Result:
  """Opens weights and images, computes features, and fits all probes.

  Args:
    request: what is asked for.
    progress: shows how far the work is.
    say: tells the user a sentence.

  Raises:
    ConfigError, ValueError, OSError: the weights or the images cannot be used.
  """
  model = opened(request, progress, say)
  if request.corruptions and model.card.channels != RGB:
    raise ConfigError(
      f"--corruptions are of RGB images, and images of these weights have {model.card.channels} "
      "channels; leave it out."
    )
  if request.corruptions and isinstance(model.card.image_size, tuple):
    raise ConfigError(
      "--corruptions are of square images, and those of these weights are "
      f"{in_pixels(model.card.image_size)} pixels; leave it out."
    )
  allowed = dict(allow_overlap=request.allow_overlap)
  parts = open_parts(request.images, model.card.trained_on, progress, **allowed)
  tell_overlap(parts, say)
  say(text.one_line(f"{request.images}: {parts.words}."))
  patches = bool({*request.probes} & {*probe.WITH_PATCHES})
  kept = cache.Cache(model, request.cache, request.batch_size, progress, say)
  test = kept.features(parts.test, "the test images", patches=patches, need_all=True)
  train = kept.features(parts.train, "the training images", patches=patches)
  rows = extraction.readable(train)
  if len(rows) < len(parts.labels):
    parts = with_training(parts, rows)
    train = {name: array[rows] for name, array in train.items()}
  options = dict(seeds=request.seeds, steps=request.steps or STEPS, progress=progress)
  token = layers.has_class_token(model.module)
  found = probe.outcomes(request.probes, parts, train, test, class_token=token, **options)
  return Result(
    facts=facts(request, model, parts),
    outcomes=found,
    rank=scores.rank_me(train["pre_logits"]),
    left_out=left_out(request, parts),
    commands=commands(request, parts),
    corrupted=corruptions(request, kept, parts, found, patches),
  )


def opened(request, progress: Progress | NoProgress, say: Callable[[str], None]) -> LoadedModel:
  """The model of a request, for its image size.

  Raises:
    ConfigError, ValueError, OSError: as `read_model` and `LoadedModel.at_size`.
  """
  progress.doing(f"reading {request.weights}")
  model = read_model(request.weights, average=request.average).at_size(request.image_size)
  if model.card.average:
    say(text.one_line(f"Of {request.weights}: the {parameters_in_words(True)}."))
  if names := left_out_of(model.read):
    say(text.one_line(f"Left out, because only the training objective needs them: {names}."))
  return model


def tell_overlap(parts: Parts | MaskedParts, say: Callable[[str], None]):
  """Warns of test images that the weights were trained on."""
  if parts.overlap:
    say(text.one_line(f"Warning: {parts.overlap}; --allow-overlap allows it."))


def facts(request: Request, model: LoadedModel, parts: Parts) -> dict[str, str | int]:
  """What is probed."""
  return described(request, model, parts) | {
    "training images": len(parts.labels),
    "test images": len(parts.test_labels),
    "parts": parts.words,
    "classes": len(parts.class_names),
    "last blocks": extraction.layer_count(model.module),
    "seeds": request.seeds,
  }


def described(request: Request, model: LoadedModel, parts: Parts | MaskedParts) -> dict[str, str]:
  """The weights, the images and how these are prepared, and which of them overlap."""
  found = {
    "weights": request.weights,
    "images": request.images,
    "model": repr(model).splitlines()[0].partition(":")[2].strip(),
    "preparation": preparation_in_words(model.card).removeprefix("resize: "),
  }
  if parts.overlap:
    found["overlap"] = parts.overlap
  return found


def left_out(request: Request, parts: Parts) -> list[str]:
  """What is asked for and not computed, and why."""
  said = []
  if "knn" in request.probes:
    said.append(neighbours.left_out(len(parts.labels)))
  if "few_shot" in request.probes:
    said.append(few_shot.left_out(parts.labels))
  if request.corruptions:
    said.append(corrupted.LEFT_OUT)
  return list(filter(None, said))


def corruptions(request: Request, kept: cache.Cache, parts: Parts, found, patches: bool) -> dict:
  """The accuracy on corrupted test images; {} if it is not asked for."""
  if not request.corruptions:
    return {}
  return corrupted.accuracies(kept, parts, found, patches=patches)


def commands(request: Request, parts: Parts) -> dict[str, str]:
  """The commands that fine-tune, and that train from scratch, on the same parts."""
  own = []
  if request.image_size:
    own.append(f"--config.data.image_size={in_pixels(request.image_size, 'x')}")
  if parts.overlap:
    own.append("--config.data.allow_overlap=True")
  return {
    "Fine-tuning": text.command(["vit-jax", "finetune", request.weights, request.images, *own]),
    "From scratch": text.command(["vit-jax", "train", request.images]),
  }
