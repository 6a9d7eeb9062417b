"""Says how to convert pickled files of weights, which are never read: they could run any code."""

from vit_jax.process.text import quoted
from vit_jax.storage import files
from vit_jax.storage.paths import Path

SUFFIXES = (".pt", ".pth", ".bin", ".ckpt", ".pkl", ".pickle", ".tar")
WEIGHTS = "model.safetensors"
# Of pickles in folders, and of what their libraries read in place of them.
NAMES = dict.fromkeys(("pytorch_model.bin", "model.pt", "model.pth"), WEIGHTS)
NAMES |= {"open_clip_pytorch_model.bin": "open_clip_model.safetensors"}


def refusal(path: Path) -> str:
  """As `advice`, for a file or for the weights in a folder."""
  return advice(path) or advice_in(path)


def advice(path: Path) -> str:
  """Says how to convert a file whose suffix is that of a pickle; else ""."""
  if path.suffix not in SUFFIXES:
    return ""
  result = _with_suffix(path)
  if path.name in NAMES:
    result = path.with_name(NAMES[path.name])
  command = f"--source {quoted(path)} --output {quoted(result)}"
  return (
    f"{path} is pickled, and pickles are never read, because they can run any code. To convert it, "
    f"on a machine with torch: vit-jax convert-pickle {command}"
  )


def advice_in(folder: Path, wanted: str = WEIGHTS) -> str:
  """As `advice`, for pickles in a folder that lacks the file `wanted`; "" if there are none."""
  for name, result in NAMES.items():
    if result == wanted and files.is_file(folder / name):
      return advice(folder / name)
  return ""


def _with_suffix(path: Path) -> Path:
  """The path with .safetensors in place of all suffixes of a pickle."""
  while path.suffix in SUFFIXES:  # checkpoint.pth.tar has two
    path = path.with_suffix("")
  return path.with_name(f"{path.name}.safetensors")
