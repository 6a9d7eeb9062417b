"""Pickled files of weights, which are never read: they could run any code. Says how to convert."""

from vit_jax.process.text import quoted
from vit_jax.storage import files
from vit_jax.storage.paths import Path

SUFFIXES = (".pt", ".pth", ".bin", ".ckpt", ".pkl", ".pickle", ".tar")
NAMES = ("pytorch_model.bin", "model.pt", "model.pth")  # in folders


def refusal(path: Path) -> str:
  """As `advice`, of a file, or of the weights in a folder."""
  return advice(path) or advice_in(path)


def advice(path: Path) -> str:
  """Says what to do with a file that is pickled by its name; "" if it is not."""
  if path.suffix not in SUFFIXES:
    return ""
  result = path.with_name("model.safetensors") if path.name in NAMES else _with_suffix(path)
  command = f"--source {quoted(path)} --output {quoted(result)}"
  return (
    f"{path} is pickled, and pickles are never read, because they can run any code. To convert it, "
    f"on a machine with torch: python tools/convert_pickle.py {command}"
  )


def advice_in(folder: Path) -> str:
  """As `advice`, of the pickled weights in a folder; "" if there are none."""
  there = (folder / name for name in NAMES)
  return next((advice(path) for path in there if files.is_file(path)), "")


def _with_suffix(path: Path) -> Path:
  while path.suffix in SUFFIXES:  # checkpoint.pth.tar
    path = path.with_suffix("")
  return path.with_name(f"{path.name}.safetensors")
