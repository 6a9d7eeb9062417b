"""Converts weights that torch pickled (.pth, .pt, .bin, .ckpt) into a .safetensors file.

vit-jax convert-pickle --source deit.pth --output deit.safetensors
vit-jax convert-pickle --source dino.pth --output student.safetensors --model student

--source may also be a .safetensors file that holds several models.

Needs torch. Runs no code of the file: only tensors are made, and everything else in it, such as
settings, optimizers and modules, is replaced by a dictionary. If the file holds several models, it
takes the moving average or the teacher, and names the others; --model takes another one.

Exit status: 0 done; 2 wrong usage: no such model, or --output cannot be written; 1 the file cannot
be read.
"""

import pathlib
import pickle
import types
import zipfile

from vit_jax.config import ConfigError
from vit_jax.config.tool_flags import ToolFlags, anywhere, ending, file
from vit_jax.process.text import one_line
from vit_jax.storage import files
from vit_jax.storage.paths import Path

# The names that make tensors. All other names in a pickle could run any code; so could attributes
# of these, which a name with a dot reaches.
TENSORS = {
  ("collections", "OrderedDict"),
  ("torch", "Tensor"),
  ("torch.nn.parameter", "Parameter"),
  ("torch._utils", "_rebuild_tensor"),
  ("torch._utils", "_rebuild_tensor_v2"),
  ("torch._utils", "_rebuild_parameter"),
  ("torch._utils", "_rebuild_parameter_with_state"),
  ("torch._tensor", "_rebuild_from_type_v2"),
}
SAFETENSORS = ".safetensors"
DEPTH = 5  # of mappings within mappings in which models are sought


class Inert(dict):
  """Stands for any other class of the file: keeps its attributes, and does nothing."""

  __hash__ = object.__hash__

  def __init__(self, *_, **__):
    super().__init__()

  def __setstate__(self, state):
    if isinstance(state, dict):
      self.update(state)

  def append(self, *_):
    """Ignores the items of a class that is like a list."""

  extend = append


class Reader(pickle.Unpickler):
  """Reads a pickle whose names may only make tensors."""

  def find_class(self, module: str, name: str):
    """The class or function of that name, if it makes tensors; else a stand-in."""
    if (module, name) in TENSORS:
      return super().find_class(module, name)
    if name == "getattr":
      return lambda *_: Inert
    return Inert


def flags() -> ToolFlags:
  """The command line."""
  result = ToolFlags("convert_pickle", __doc__)
  add = result.add_argument
  add("--source", type=anywhere, required=True, help="the pickled file")
  add("--output", type=anywhere, required=True, help="the .safetensors file to write")
  add("--model", default="", metavar="NAME", help="which model of several, or a part of it")
  return result


def read(path: Path) -> dict:
  """The content that torch saved: tensors, and `Inert` in place of all other objects."""
  with files.local_copy(path) as place:
    return read_local(place, path)


def read_local(place: pathlib.Path, path: Path) -> dict:
  """As `read`, of the copy at `place` of the file at `path`."""
  import torch
  from safetensors.torch import load_file

  from vit_jax.weights.arrays import reading

  if path.suffix == SAFETENSORS:
    with reading(path, SAFETENSORS):
      return load_file(place)
  if is_torchscript(place):
    raise ValueError(f"{path} is a program of TorchScript, which is not run; save its state_dict.")
  reader = types.SimpleNamespace(__name__="", Unpickler=Reader, load=load)
  try:
    content = torch.load(place, map_location="cpu", pickle_module=reader, weights_only=False)
  except (pickle.UnpicklingError, EOFError, KeyError, TypeError, AttributeError) as error:
    raise ValueError(f"{path} cannot be read as a file of torch ({error}).") from error
  if not isinstance(content, dict):
    return {}
  return content


def is_torchscript(path: pathlib.Path) -> bool:
  """Whether a file holds a program of TorchScript."""
  if not zipfile.is_zipfile(path):
    return False
  names = zipfile.ZipFile(path).namelist()
  return any(name.endswith("/constants.pkl") for name in names)


def load(file, **options):
  """`pickle.load` with `Reader`."""
  return Reader(file, **options).load()


def models(content: dict, name: str = "", depth: int = DEPTH) -> dict[str, dict]:
  """The models in a file, {name: {name of an array: tensor}}; "" if the file is one model."""
  own = arrays(content)
  if any(key.endswith(".weight") for key in own):
    return {name: own}
  inner = {key: value for key, value in content.items() if isinstance(value, dict) and depth}
  return {
    found: own
    for key, value in inner.items()
    for found, own in models(value, f"{name}.{key}".strip("."), depth - 1).items()
  }


def arrays(content: dict) -> dict:
  """The tensors of a state dictionary, or of a pickled module and the modules inside it.

  Raises:
    ValueError: a stand-in has the name of a parameter.
  """
  import torch

  named = content | (content.get("_parameters") or {})
  odd = [key for key, value in named.items() if isinstance(value, Inert) and is_parameter(key)]
  if odd:
    raise ValueError(f"{odd[0]} is no plain tensor, but quantised, sparse or of another class.")
  own = {str(key): value for key, value in named.items() if torch.is_tensor(value)}
  inside = content.get("_modules") or {}
  return own | {
    f"{key}.{name}": value
    for key, module in inside.items()
    if module
    for name, value in arrays(module).items()
  }


def is_parameter(key) -> bool:
  """Whether a key is the name of a layer's parameter."""
  return str(key).endswith((".weight", ".bias"))


def chosen(found: dict[str, dict], asked: str) -> tuple[str, dict]:
  """The model with the given name, else the average or the teacher, else the first.

  Raises:
    ConfigError: there is no such model.
  """
  from vit_jax.weights.prefixes import AVERAGE

  averages = [name for name in found if AVERAGE.search(name)]
  name = asked or [*averages, *found, ""][0]
  whole = {f"{key}.{n}".strip("."): x for key, own in found.items() for n, x in own.items()}
  prefix = f"{name}." if name else ""
  taken = {
    key.removeprefix(name).strip("."): value
    for key, value in whole.items()
    if key.startswith(prefix) and value.is_floating_point()
  }
  if not taken:
    if not found:
      raise ConfigError("The file holds no model: no dictionary in it has the names of layers.")
    there = ", ".join(found)
    raise ConfigError(f"The file has no model {name!r}; it has {there}.")
  return name, taken


def check_output(output: Path, source: Path):
  """Checks that the output can be read as what it is, and that it does not replace the source.

  Raises:
    ConfigError: it has another suffix, is the source, or cannot be written.
  """
  file(output, "--output")
  if output.suffix != SAFETENSORS:
    raise ConfigError(f"--output {output} must end in {SAFETENSORS}, the format that it gets.")
  if files.real(output) == files.real(source):
    raise ConfigError(f"--output {output} is --source; give another name.")


def convert(args) -> str:
  """Converts as the command line asks; returns a sentence.

  Raises:
    ConfigError: torch is missing, there is no such model, or as `check_output`.
    OSError, ValueError: the file cannot be read or written.
  """
  check_output(args.output, args.source)
  try:
    from safetensors.torch import save_file
  except ImportError as error:
    raise ConfigError(f"This tool needs torch: pip install torch ({error}).") from error
  found = models(read(args.source))
  name, taken = chosen(found, args.model)
  content = {key: x.detach().clone().contiguous() for key, x in taken.items()}
  with files.atomic_write(args.output) as partial:
    save_file(content, partial)
  said = f"{args.output} has {name or 'the model'} of {args.source}."
  others = ", ".join(key for key in found if key != name)
  if others:
    said += f" Other models in it: {others} (--model)."
  return one_line(said)


def main(arguments: list[str] | None = None):
  """Converts; see the exit status above."""
  args = flags().parse_args(arguments)
  with ending("convert_pickle"):
    print(convert(args))
