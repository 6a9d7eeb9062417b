"""Features on disk, so that the next probe or search does not compute them again.

A file belongs to weights, to settings, and to the source that the user named. It holds the identity
of the images, by names, labels, file sizes and the content of some: if it differs now, or the file
is damaged, the features are computed again, and the user is told.
"""

import dataclasses
import functools
import hashlib
import json
import zipfile
from collections.abc import Callable, Mapping

import numpy as np

from vit_jax.data import identity
from vit_jax.data.datasets import NamedDataset, for_any_folder
from vit_jax.data.identity import Identity
from vit_jax.extras.probes import extraction
from vit_jax.inference.model import LoadedModel
from vit_jax.process.progress import NoProgress, Progress
from vit_jax.process.text import one_line
from vit_jax.storage import files
from vit_jax.storage.paths import Path
from vit_jax.training.fingerprint import digest_of

VERSION = 3  # of the content; raised when the features of the same weights change
NAMED = 5  # most images that cannot be read which are named
KEY = "key"  # the entry that holds settings and fingerprint as JSON


@dataclasses.dataclass(frozen=True)
class Cache:
  """The features of a model, kept in a folder.

  Attributes:
    model: for a known image size.
    folder: the folder.
    batch_size: images at a time, at most.
    progress: shows how far the work is.
    say: tells the user a sentence.
  """

  model: LoadedModel
  folder: Path
  batch_size: int
  progress: Progress | NoProgress
  say: Callable[[str], None]

  def features(
    self, named: NamedDataset, what: str, *, patches: bool, need_all: bool = False
  ) -> dict[str, np.ndarray]:
    """The features of a source, read or computed, as `extraction.features` returns them.

    Tells the user which images cannot be read.

    Args:
      named: the images.
      what: names them in the progress.
      patches: as for `extraction.features`.
      need_all: whether images that cannot be read are refused.

    Raises:
      ValueError: no image can be read, or with `need_all` not every one; or as
        `extraction.features`.
      OSError, NotFinite: as `extraction.features`.
    """
    features, reasons = self._features(named, what, patches=patches)
    if not reasons:
      return features
    count = f"{len(reasons):,} of {len(named.source):,} images cannot be read"
    some = list(reasons.items())[:NAMED]
    named_ones = "; ".join(f"{named.source.name(row)}: {why.rstrip('.')}" for row, why in some)
    more = ", such as" if len(reasons) > NAMED else ":"
    if need_all or len(reasons) == len(named.source):
      raise ValueError(f"{what}: {count}{more} {named_ones}; repair them or leave them out.")
    self.say(one_line(f"{what}: {count}, and are left out{more} {named_ones}."))
    return features

  def _features(self, named, what, *, patches) -> tuple[dict[str, np.ndarray], dict[int, str]]:
    """The features, and why images cannot be read, by row."""
    images = identity.of(named.source, what, self.progress)
    for with_patches in dict.fromkeys((patches, True)):  # a file with patches serves both
      path, key = self._place(named, with_patches)
      kept, reason = read(path, key, images, patches=patches)
      reasons = {}
      if kept is not None:
        reasons = extraction.unreadable(self.model, named.source, kept)
      if not all(reasons.values()):
        kept, reason = None, "images that could not be read can be read by now"
      if kept is not None:
        self.say(one_line(f"Features of {what}: read from {path}."))
        return kept, reasons
      if reason:
        words = f"{path} is not used, because {reason}; computing them again."
        self.say(one_line(f"Features of {what}: {words}"))
    count = self.progress.images(f"features of {what}", len(named.source), compiles=True)
    computed = extraction.features(
      self.model, named.source, patches=patches, batch_size=self.batch_size, done=count.done
    )
    path, key = self._place(named, patches)
    try:
      write(path, key, images, computed)
    except OSError as error:
      self.say(one_line(f"Features of {what}: not kept, because {path} cannot be written: {error}"))
    return computed, extraction.unreadable(self.model, named.source, computed)

  def _place(self, named: NamedDataset, patches: bool) -> tuple[Path, dict]:
    """The file for the features of these images, and its key."""
    key = self._key(named, patches)
    return self.folder / f"{_digest(json.dumps(key).encode())}.npz", key

  def _key(self, named: NamedDataset, patches: bool) -> dict:
    """What the features depend on, apart from the content of the images."""
    dataset = dataclasses.asdict(for_any_folder(named.dataset))
    key = {
      "version": VERSION,
      "weights": self.weights,
      "model": repr(self.model.module),
      "preparation": self.model.card.preparation(),
      "representation": self.model.card.representation,
      "patches": patches,
      "images": dataset,
    }
    return json.loads(json.dumps(key))  # as it is read again

  @functools.cached_property
  def weights(self) -> str:
    """The fingerprint of the model's parameters."""
    return digest_of(self.model.params)


def read(
  path: Path, key: dict, images: Identity, *, patches: bool
) -> tuple[dict[str, np.ndarray] | None, str]:
  """The features in a file and "", or None and why they are of no use; no reason: no file."""
  if not files.is_file(path):
    return None, ""
  try:
    with files.local_copy(path) as place, np.load(place, allow_pickle=False) as stored:
      found = json.loads(str(stored[KEY]))
      left_out = [KEY] + ["patches"] * (not patches)
      result = {name: stored[name] for name in stored.files if name not in left_out}
    before = Identity(**found["fingerprint"])
  except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
    return None, f"it is damaged ({type(error).__name__}: {error})"
  if found["key"] != key:
    return None, "it is of other settings"
  if changes := identity.changes(before, images):
    return None, f"the images have changed ({', '.join(changes)})"
  if not result or any(len(array) != images.images for array in result.values()):
    return None, "it is damaged (it has other numbers of images)"
  return result, ""


def write(path: Path, key: dict, images: Identity, features: Mapping[str, np.ndarray]):
  """Writes features; the file is there as a whole, or not at all.

  Raises:
    OSError: it cannot be written.
  """
  files.make_folder(path.parent)
  text = json.dumps({"key": key, "fingerprint": images._asdict()})
  with files.atomic_write(path) as partial, open(partial, "wb") as stream:
    np.savez(stream, **{KEY: np.array(text)}, **features)


def _digest(data: bytes) -> str:
  return hashlib.blake2b(data, digest_size=16).hexdigest()
