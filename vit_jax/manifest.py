"""The SHA-256 sums of a checkpoint's files: no format of array files protects its own bits."""

import hashlib
import json
import pathlib

import jax
import numpy as np
from jax.experimental import multihost_utils

MANIFEST = "manifest.json"
ITEMS = ("state", "meta")


def write(folder: pathlib.Path):
  """Writes the sums of a checkpoint whose items are complete."""
  text = json.dumps(sums(folder), indent=1, sort_keys=True)
  (folder / MANIFEST).write_text(text, encoding="utf-8")


def sums(folder: pathlib.Path) -> dict[str, str]:
  """SHA-256 of every file of the state and meta items, by path within `folder`."""
  files = [path for item in ITEMS for path in (folder / item).rglob("*") if path.is_file()]
  return {path.relative_to(folder).as_posix(): _sum(path) for path in files}


def _sum(path):
  with path.open("rb") as file:
    return hashlib.file_digest(file, "sha256").hexdigest()


def damage_of(folder: pathlib.Path) -> str:
  """What is wrong with a checkpoint, in words; empty where every sum agrees."""
  try:
    expected = json.loads((folder / MANIFEST).read_text())
  except (OSError, ValueError) as error:
    return f"its {MANIFEST} cannot be read ({error})"
  actual = sums(folder)
  missing, extra = expected.keys() - actual.keys(), actual.keys() - expected.keys()
  changed = [name for name in expected.keys() & actual.keys() if expected[name] != actual[name]]
  parts = [
    f"{what} {', '.join(sorted(files))}"
    for what, files in (("missing", missing), ("not in the manifest", extra), ("changed", changed))
    if files
  ]
  return "; ".join(parts)


def agreed_damage(folder: pathlib.Path) -> str:
  """`damage_of` as the first process sees it, on every process; read once for all of them."""
  if jax.process_count() == 1:
    return damage_of(folder)
  words = damage_of(folder) if jax.process_index() == 0 else ""
  padded = np.frombuffer(words.encode()[:4096].ljust(4096), np.uint8)
  return multihost_utils.broadcast_one_to_all(padded).tobytes().decode(errors="replace").strip()
