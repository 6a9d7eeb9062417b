"""Reads weights from files, folders and runs; writes them to files and folders."""

import contextlib
import pathlib
import tempfile
from collections.abc import Iterator

from vit_jax import registry
from vit_jax.config import ConfigError
from vit_jax.data.datasets import History
from vit_jax.models.stacking import unstack_blocks
from vit_jax.storage import checkpoint, files
from vit_jax.storage.base import FileVersion
from vit_jax.storage.paths import Path, inside, path_of
from vit_jax.storage.tree import flatten
from vit_jax.storage.workdir import CHECKPOINTS
from vit_jax.weights import arrays, card, workdir
from vit_jax.weights.format import WeightFormat, Weights
from vit_jax.weights.positions import with_fixed_positions, without_table

NEEDED = (".json", ".safetensors", ".md")  # files in a folder that formats read, or keep


def read(path: Path | str, *, step: int = 0, average: bool = True) -> Weights:
  """Reads parameters, and what is known about them.

  Args:
    path: a file or folder in a format of `registry.WEIGHT_FORMATS`; a run's workdir, or one of its
      checkpoints.
    step: which checkpoint of a workdir; 0: the newest.
    average: of a checkpoint with a moving average of the parameters, read the average; False: the
      parameters themselves.

  Raises:
    ConfigError: nothing is there, it is of no known format, or has no such step.
    ValueError: the content does not match the format, or the card does not match the head.
    OSError: a file cannot be read.
    CheckpointError: the checkpoint is damaged, or there is none.
  """
  path = path_of(path)
  if workdir.is_at(path):
    return workdir.read_checkpoint(path, step, average)
  if files.exists(path) and (step or not average):
    raise ConfigError(
      f"{path} has no checkpoints to choose a step or a moving average from; leave that choice out."
    )
  with _here(path, *_beside(path)) as place:
    return _read(_format_of(place, path), place, path)


def versions(path: Path | str) -> tuple[tuple[str, FileVersion], ...]:
  """The files that decide what `read` returns for `path`, each with its version.

  Of a run they are those of its newest checkpoint. They are () if nothing is there.

  Raises:
    ConfigError: as `path_of`.
    OSError: a folder cannot be read.
  """
  path = path_of(path).absolute()
  folder, steps = checkpoint.named_by(path)
  if steps:
    path = folder / CHECKPOINTS / str(steps[-1])
  candidates = files.matching(path) or [path, card.path_beside(path), *_beside(path)]
  return tuple((str(file), files.stamp(file)) for file in candidates if files.is_file(file))


def _beside(path: Path) -> list[Path]:
  """Files in the folder of a file that tell more of it, in the formats that have such files."""
  return sorted({path.parent / name for form in _formats().values() for name in form.beside})


@contextlib.contextmanager
def _here(path: Path, *beside: Path) -> Iterator[pathlib.Path]:
  """A local path, as libraries read only local files: `path` itself, or a copy with its card.

  The files `beside` it are copied too, if they exist. From a folder only the files at its top level
  are copied that formats read.
  """
  if isinstance(path, pathlib.Path):
    yield path
    return
  with tempfile.TemporaryDirectory() as scratch:
    place = inside(pathlib.Path(scratch), path.name)
    if files.is_folder(path):
      below = files.matching(path)
      paths = [inner for inner in below if inner.suffix in NEEDED and files.is_file(inner)]
      files.copy_files(path, place, [inner.name for inner in paths], most=arrays.MAX_BYTES)
    else:
      candidates = path, card.path_beside(path), *beside
      names = [inner.name for inner in candidates if files.is_file(inner)]
      files.copy_files(path.parent, place.parent, names, most=arrays.MAX_BYTES)
    yield place


def _read(form: WeightFormat, place: pathlib.Path, path: Path) -> Weights:
  with arrays.reading(path, form.words):
    params = form.load(place)
    known = form.card(place, params)
    weights = Weights(without_table(params, known), known)
    names = weights.class_names()
    bias = flatten(params).get("head/bias")
    if names and bias is not None and len(names) != bias.size:
      raise ValueError(
        f"its card names {len(names)} classes; the head of the weights has {bias.size}"
      )
  return weights


def trained_on(path: Path | str, *, step: int = 0) -> History:
  """The datasets that the weights at `path` were trained on; () if unknown. Reads no parameters.

  Args:
    path, step: as in `read`; nothing need be there.

  Raises:
    ValueError, OSError: the card or the checkpoint is damaged.
  """
  path = path_of(path)
  if workdir.is_at(path):
    return workdir.trained_on(path, step)
  with _here(path) as place:
    form = _recognised(place)
    if not form:
      return ()
    with arrays.reading(path, form.words):
      recorded = form.card(place, None)
    if recorded is None:
      return ()
    return recorded.trained_on


def write(path: Path | str, weights: Weights, name: str = ""):
  """Writes parameters and their card; without a card, one is made from the parameters.

  Args:
    path: a file or folder; `format_to_write` says in which format.
    weights: what to write.
    name: of the format; "": by the suffix.

  Raises:
    ConfigError: there is no such format, or another command writes there.
    ValueError: the format cannot express the model.
    OSError: the file cannot be written.
  """
  path = path_of(path)
  form = format_to_write(path, name)
  known = weights.card or card.inferred(weights.params)
  files.make_folder(path.parent)
  with files.one_writer(path), _here(path) as place:
    form.save(place, with_fixed_positions(unstack_blocks(weights.params), known), known)
    if form.suffix:
      card.write(card.path_beside(place), known)
    if place != path:
      written = path.name, card.path_beside(path).name
      below = files.files_below(place.parent)
      names = [name for name in below if name.partition("/")[0] in written]
      files.copy_files(place.parent, path.parent, names)


def _format_of(place: pathlib.Path, path: Path) -> WeightFormat:
  """The format of the weights at `path`, of which `place` is the local copy.

  Raises:
    ConfigError: nothing is there, or it is of no known format.
  """
  if not files.exists(place):
    raise ConfigError(files.NO_WEIGHTS.format(path))
  form = _recognised(place)
  if form is None:
    for other in _formats().values():
      if refusal := other.refusal(path):
        raise ConfigError(refusal)
    known = ", ".join(form.words for form in _formats().values())
    raise ConfigError(f"{path} holds no weights in a known format: {known}, the workdir of a run.")
  return form


def format_to_write(path: Path, name: str = "") -> WeightFormat:
  """The format to write to a path.

  Args:
    path: its suffix is that of the format; with the name of a folder's format, any path.
    name: of the format; "": the first one with this suffix.

  Raises:
    ConfigError: there is none.
  """
  formats = {key: form for key, form in _formats().items() if form.save}
  for key, form in formats.items():
    if name in ("", key) and form.suffix == path.suffix:
      return form
    if name == key and not form.suffix:
      return form
  known = ", ".join(f"{path.with_suffix(form.suffix)} ({key})" for key, form in formats.items())
  wanted = "a format of weights"
  if name:
    wanted = f"the format {name!r}"
  raise ConfigError(f"{path} is no name for {wanted}; these can be written: {known}.")


def _formats() -> dict[str, WeightFormat]:
  return dict(registry.WEIGHT_FORMATS)


def _recognised(path: pathlib.Path) -> WeightFormat | None:
  return next((form for form in _formats().values() if form.is_at(path)), None)
