"""The accuracy of fitted classifiers on corrupted test images."""

import functools
from collections.abc import Sequence

from vit_jax.extras.probes import extraction, scores
from vit_jax.extras.probes.cache import Cache
from vit_jax.extras.probes.corruptions import CORRUPTIONS, SEVERITIES
from vit_jax.extras.probes.corruptions import corrupted as corrupt
from vit_jax.extras.probes.parts import Parts
from vit_jax.extras.probes.probe import Outcome

LEFT_OUT = "no corruption by frost: it needs photographs of frost"


def accuracies(
  kept: Cache, parts: Parts, outcomes: Sequence[Outcome], *, patches: bool
) -> dict[str, dict[int, dict[str, float]]]:
  """{corruption: {severity: {classifier: accuracy}}}, of the classifiers of the first seed.

  Args:
    kept: has the model; features of corrupted images are not kept.
    parts: the images.
    outcomes: the classifiers.
    patches: whether a classifier needs the features of all patches.
  """
  source = parts.test.source
  total = len(source) * len(CORRUPTIONS) * len(SEVERITIES)
  done = kept.progress.images("corrupted images", total).done
  result = {}
  for name in CORRUPTIONS:
    result[name] = {}
    for severity in SEVERITIES:
      features = extraction.features(
        kept.model,
        source,
        patches=patches,
        batch_size=kept.batch_size,
        change=functools.partial(corrupt, name, severity),
        done=done,
      )
      if reasons := extraction.unreadable(kept.model, source, features):
        raise ValueError(
          f"{parts.test}: {len(reasons)} images cannot be read any more; start again."
        )
      result[name][severity] = {
        each.name: scores.accuracy(each.first.scores(features), parts.test_labels)
        for each in outcomes
      }
  return result
