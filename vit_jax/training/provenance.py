"""What is recorded of a start of a run: the command, the versions, the devices, some images."""

import datetime
import importlib.metadata
import pathlib
import platform
import subprocess
import sys
from collections.abc import Sequence

import jax

from vit_jax.data import described
from vit_jax.data.apart import in_words
from vit_jax.evaluation import examples
from vit_jax.storage import files, starts, workdir
from vit_jax.training.plan import Plan, total_count, trained_count

PACKAGES = ("vit_jax", "jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy")
SHOWN = 8  # training images that are kept
GIT_SECONDS = 5


def record(plan: Plan, folder: pathlib.Path, step: int, changed: Sequence[str]):
  """Writes what is known at the start after `step`; with the first start also some images.

  Args:
    plan: the run.
    folder: its workdir.
    step: number of steps that are done.
    changed: the settings that differ from those of the steps so far.

  Raises:
    OSError: the folder cannot be written to.
  """
  starts.add(folder, facts(plan, step) | {"changed": list(changed)})
  if not step:
    write_images(plan, folder / workdir.IMAGES)


def facts(plan: Plan, step: int) -> dict:
  """The facts of a start after `step`, ready for JSON."""
  device = plan.mesh.devices.flat[0]
  return {
    "step": step,
    "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    "command": sys.argv,
    "revision": revision(),
    "versions": versions(),
    "platform": platform.platform(),
    "devices": plan.mesh.size,
    "device_kind": device.device_kind,
    "hosts": jax.process_count(),
    "steps": plan.steps.total,
    "batch_size": plan.config.batch_size,
    "trained_on_before": [in_words(one.dataset) for one in plan.data.earlier],
    "training_images": len(plan.data.train),
    "classes": len(plan.data.train.class_names),
    "data_notes": described.notes(plan.data.uses),
    "parameters": total_count(plan),
    "trained_parameters": trained_count(plan),
  }


def versions() -> dict[str, str]:
  """The version of Python and of each package that is installed."""
  installed = {"python": platform.python_version()}
  for name in PACKAGES:
    try:
      installed[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
      continue
  return installed


def revision() -> str:
  """The git revision of this code, followed by "-dirty" if files were changed; "" if not known."""
  file = pathlib.Path(__file__).resolve()
  git = ["git", "-C", str(file.parent)]
  # An installed copy may lie inside the repository of another project, which does not track it.
  if not output([*git, "ls-files", "--", file.name]):
    return ""
  return output([*git, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"])


def output(command: list[str]) -> str:
  """What a command prints; "" if it fails or is not installed."""
  try:
    done = subprocess.run(command, capture_output=True, text=True, timeout=GIT_SECONDS)
  except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
    return ""
  return done.stdout.strip() if done.returncode == 0 else ""


def write_images(plan: Plan, folder: pathlib.Path):
  """Writes the first training images of the run as the step gets them, with their classes.

  Raises:
    OSError: the folder cannot be written to.
  """
  data = plan.data
  seen = plan.reader.first_training(
    data.train, parts=data.parts, seed=plan.config.seed, count=min(SHOWN, plan.config.batch_size)
  )
  names = data.train.class_names
  told = ["; ".join(names[label] for label in one.labels if names) for one in seen]
  examples.write(folder, {row: one.image for row, one in enumerate(seen)})
  files.write_csv(folder / starts.CLASSES, [["image", "classes"], *enumerate(told)])
