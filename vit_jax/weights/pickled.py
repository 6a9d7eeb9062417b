"""Pickled files of weights, which are never read: they could run any code. Says how to convert."""

import pathlib
import shlex

from vit_jax.storage import files
from vit_jax.storage.paths import Path

SUFFIXES = (".pt", ".pth", ".bin", ".ckpt", ".pkl", ".pickle", ".tar")
NAMES = ("pytorch_model.bin", "model.pt", "model.pth")  # in folders
_CODE = (
  "import torch; from safetensors.torch import save_file; "
  "d = torch.load({source!r}, weights_only=True); d = d.get('model', d.get('state_dict', d)); "
  "save_file({{k: v.clone().contiguous() for k, v in d.items()}}, {result!r})"
)


def advice(path: Path) -> str:
  """Says what to do with a file that is pickled by its name; "" if it is not."""
  if path.suffix not in SUFFIXES:
    return ""
  result = path.with_name("model.safetensors") if path.name in NAMES else _with_suffix(path)
  code = _CODE.format(source=str(path), result=str(result))
  return (
    f"{path} is pickled, and pickles are never read, because they can run any code. To convert "
    f"it, on a machine with torch: python -c {shlex.quote(code)}"
  )


def advice_in(folder: Path) -> str:
  """As `advice`, of the pickled weights in a folder; "" if there are none."""
  there = (folder / name for name in NAMES)
  return next((advice(path) for path in there if files.is_file(path)), "")


def _with_suffix(path: pathlib.Path) -> pathlib.Path:
  while path.suffix in SUFFIXES:  # checkpoint.pth.tar
    path = path.with_suffix("")
  return path.with_name(f"{path.name}.safetensors")
