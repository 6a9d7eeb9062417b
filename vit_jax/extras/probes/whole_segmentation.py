"""A segmentation probe from weights, images and masks to its result."""

import dataclasses
from collections.abc import Callable

from vit_jax.config import ConfigError, sides
from vit_jax.extras.probes import cache, masks, scores, segmentation, windows
from vit_jax.extras.probes.masks import MaskedParts
from vit_jax.extras.probes.probe import Outcome
from vit_jax.extras.probes.request import SEGMENTATION, SEGMENTATION_STEPS, Request
from vit_jax.extras.probes.results import Result
from vit_jax.extras.probes.whole_probe import described, opened, tell_overlap
from vit_jax.process.progress import NoProgress, Progress


def run(request: Request, progress: Progress | NoProgress, say: Callable[[str], None]) -> Result:
  """Opens weights, images and masks, computes features, and trains the probe for each seed.

  Args:
    request, progress, say: as for `whole_probe.run`.

  Raises:
    ConfigError, ValueError, OSError: the weights, the images or the masks cannot be used.
  """
  if request.probes != (SEGMENTATION,) or request.corruptions:
    raise ConfigError(
      f"{SEGMENTATION} needs images with masks, so it goes with no other probe and without "
      "--corruptions; give it alone."
    )
  model = opened(request, progress, say)
  progress.doing("reading masks")
  allowed = dict(allow_overlap=request.allow_overlap)
  parts = masks.open_masked(request.images, model.card.trained_on, progress, **allowed)
  tell_overlap(parts, say)
  card = dataclasses.replace(model.card, resize=0)  # a window is not cropped again
  model = dataclasses.replace(model, card=card)
  kept = cache.Cache(model, request.cache, request.batch_size, progress, say)
  of_train = windows.of_images(parts.train, parts.masks, card)
  of_test = windows.of_images(parts.test, parts.test_masks, card)
  test = kept.features(of_test, "the test images", patches=True, need_all=True)
  train = kept.features(of_train, "the training images", patches=True, need_all=True)
  train_masks = list(windows.of_masks(parts.masks, card))
  grid = model.module.grid(*sides(card.image_size))
  steps = request.steps or SEGMENTATION_STEPS
  found = []
  for seed in range(request.seeds):
    batch = min(segmentation.BATCH, len(train_masks))
    count = progress.images(f"{SEGMENTATION}, seed {seed}", steps * batch)
    options = dict(grid=grid, classes=parts.classes, seed=seed, steps=steps)
    probe = segmentation.fit(train["patches"], train_masks, done=count.done, **options)
    cells = segmentation.confusion(probe, test["patches"], parts.test_masks, grid, card)
    found.append(segmentation.scores(cells))
  return Result(
    facts=facts(request, model, parts, steps),
    outcomes=[Outcome(SEGMENTATION, found, [""] * len(found))],
    rank=scores.rank_me(train["pre_logits"]),
    left_out=(),
    commands={},
    corrupted={},
  )


def facts(request: Request, model, parts: MaskedParts, steps: int) -> dict[str, str | int]:
  """What is probed."""
  return described(request, model, parts) | {
    "training images": len(parts.masks),
    "test images": len(parts.test_masks),
    "parts": parts.words,
    "classes": parts.classes,
    "steps": steps,
    "seeds": request.seeds,
  }
