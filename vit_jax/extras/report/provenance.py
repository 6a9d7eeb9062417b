"""Records each start of a run: the command, the versions, the devices, some images."""

import dataclasses
import datetime
import platform
import sys
from collections.abc import Mapping

import jax
import numpy as np

from vit_jax.config import ObjectiveSettings, plugins
from vit_jax.data import datasets
from vit_jax.data.augmentation.samples import samples
from vit_jax.data.datasets import in_words
from vit_jax.evaluation import examples
from vit_jax.process import program
from vit_jax.storage import files, workdir
from vit_jax.storage.paths import Path
from vit_jax.training.loop import Callback
from vit_jax.training.run import Run

SHOWN = 8  # training images that are kept
AUGMENTED = 4  # images that are kept for each operation of an augmentation


class Provenance(Callback):
  """Writes the facts of each start that trains; at the first start also some images."""

  def start(self, moment):
    """Writes facts and images, on the first process."""
    folder = self._session.folder
    if jax.process_index() != 0 or not self._session.left:
      return
    with workdir.writing(folder):
      workdir.add_start(folder, facts(self._run))
      if not moment.step:
        write_images(self._run, folder / workdir.IMAGES)
        write_augmented(self._run, folder / workdir.IMAGES)


def facts(run: Run) -> dict:
  """The facts of a start, ready for JSON."""
  device = run.mesh.devices.flat[0]
  return {
    "step": run.resume_point.step,
    "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    "command": sys.argv,
    "typed": sys.orig_argv,
    "revision": program.revision(),
    "code": program.code(),
    "plugins": {name: program.of_module(name) for name in plugins.names_in(run.config.plugins)},
    "versions": program.versions(),
    "variables": program.variables(),
    "platform": platform.platform(),
    "devices": run.mesh.size,
    "device_kind": device.device_kind,
    "attention": run.attention,
    "hosts": jax.process_count(),
    "steps": run.steps.total,
    "batch_size": run.config.batch_size,
    "trained_on_before": [in_words(known.dataset) for known in run.data.earlier],
    "training_images": len(run.data.train),
    "classes": len(run.data.train.class_names),
    "data_notes": datasets.notes(run.data.datasets),
    "parameters": run.parameter_count(),
    "trained_parameters": run.trained_count(),
    "changed": list(run.changed),
  }


def write_images(run: Run, folder: Path):
  """Writes the first training images, as the training step receives them, and their classes.

  Raises:
    OSError: the folder cannot be written to.
  """
  data = run.data
  seen = run.reader.first_training(
    data.train, parts=data.parts, seed=run.config.seed, count=min(SHOWN, run.config.batch_size)
  )
  names = data.train.class_names
  labels = ["; ".join(names[label] for label in example.labels if names) for example in seen]
  examples.write(folder, {number: picture(example.row) for number, example in enumerate(seen)})
  files.write_csv(folder / workdir.CLASSES, [["image", "classes"], *enumerate(labels)])


def squares(row: Mapping[str, np.ndarray]) -> np.ndarray:
  """The squares (N, S, S, 3) of the first image in a row of a batch."""
  first = next(iter(row.values()))
  return first if first.ndim == 4 else first[None]


def picture(row: Mapping[str, np.ndarray]) -> np.ndarray:
  """The first image of a row, as the training step receives it; several squares side by side."""
  images = squares(row)
  if len(images) == 1:
    return images[0]
  return examples.grid(images, len(images))


def write_augmented(run: Run, folder: Path):
  """Writes a picture for each operation of config.data.augment: crops after that operation alone.

  Raises:
    OSError: the folder cannot be written to.
  """
  data = run.data
  views = run.reader.objective.views(run.reader.settings)
  first = next(iter(views.values())).data
  if not first.augment:
    return
  without = dataclasses.replace(first, augment=())
  plain = dataclasses.replace(run.reader, settings=without, objective=ObjectiveSettings())
  seen = plain.first_training(
    data.train, parts=data.parts, seed=run.config.seed, count=min(AUGMENTED, run.config.batch_size)
  )
  if not seen:  # all images are broken
    return
  every = samples(first.augment, np.stack([squares(example.row)[0] for example in seen]))
  strips = {row: examples.grid(one.images, len(one.images)) for row, one in enumerate(every)}
  examples.write(folder / workdir.AUGMENTED, strips)
  names = [["row", "operation"], *enumerate(one.name for one in every)]
  files.write_csv(folder / workdir.AUGMENTED / workdir.OPERATIONS, names)
