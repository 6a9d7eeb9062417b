"""What a program computes, what its file says of it, and how the file is verified.

A program takes uint8 pixels, as `LoadedModel.predict` prepares them, and scales them itself. It
gives logits, not probabilities: a ranking, a threshold or a temperature can be computed from these,
and the description says which function turns them into probabilities.
"""

import dataclasses
import functools
from collections.abc import Callable

import jax
import jax.export
import numpy as np

from vit_jax import registry
from vit_jax.config import ConfigError, Size, sides
from vit_jax.data.batches import normalize
from vit_jax.inference import export, layers
from vit_jax.inference.model import LoadedModel
from vit_jax.storage import files
from vit_jax.storage.paths import Path
from vit_jax.storage.tree import flatten
from vit_jax.weights import card as cards

MOST = 2**31  # bytes of a file: both formats address it with 32 bits
BATCHES = (1, 3)  # sizes that are verified
# The largest difference, as a part of the largest output. Compilers round in other places: in ONNX
# Runtime, a ResNet-50 with random parameters differs by 3e-5, and a ViT-B/16 by 2e-6.
BOUND = 1e-4
INPUT = "images"


@dataclasses.dataclass(frozen=True)
class Program:
  """What is written to a file.

  Attributes:
    function: pixels (B, S, S, C) uint8 -> (B, K) float32, with the parameters as constants.
    size, channels: of the images.
    output: "logits"; "embeddings" of a projection; for weights without a head "features".
    description: for users of the file; its values can be written as JSON.
  """

  function: Callable[[jax.Array], jax.Array]
  size: Size
  channels: int
  output: str
  description: dict

  def input(self) -> jax.ShapeDtypeStruct:
    """The pixels that `function` takes, of any batch size."""
    height, width = sides(self.size)
    shape = jax.export.symbolic_shape(f"batch, {height}, {width}, {self.channels}")
    return jax.ShapeDtypeStruct(shape, np.uint8)


@dataclasses.dataclass(frozen=True)
class ProgramFormat:
  """A format of programs: a module that ends in a `ProgramFormat`, and a line in the registry.

  Attributes:
    suffix: of its files.
    check: raises a ConfigError if a library is missing.
    save: writes a program, with its description.
    load: reads a file -> a function of pixels (B, S, S, C) uint8.
  """

  suffix: str
  check: Callable[[], None]
  save: Callable[[Path, Program], None]
  load: Callable[[Path], Callable[[np.ndarray], np.ndarray]]


def format_of(path: Path, name: str = "") -> ProgramFormat | None:
  """The format of programs with the suffix of `path`, and this name unless it is ""; or None."""
  for key, form in registry.PROGRAM_FORMATS.items():
    if name in ("", key) and form.suffix == path.suffix:
      return form
  return None


def write(model: LoadedModel, source: str, output: Path, form: ProgramFormat) -> list[str]:
  """Writes a model as a program; returns lines that describe the file.

  Args:
    model: the model, for a known image size.
    source: where it was read from.
    output: the file.
    form: its format.

  Raises:
    ConfigError: the parameters are too large for the file.
    OSError: the file cannot be written.
  """
  size = sum(array.nbytes for array in flatten(model.params).values())
  if size >= MOST:
    raise ConfigError(
      f"{output} can hold {MOST / 1e9:.2f} GB, and the parameters take {size / 1e9:.2f} GB; export "
      "weights instead, such as .safetensors."
    )
  program = of_model(model)
  with files.one_writer(output):
    form.save(output, program)
  description = program.description
  words = f"{description['input']} -> {description['output']}"
  return [f"{output}: a program of {export.origin(model, source)}; {words}"]


def of_model(model: LoadedModel) -> Program:
  """The program of a model for a known image size."""
  output = "features"
  if model.has_head:
    output = "embeddings" if model.card.projection else "logits"
  function = functools.partial(_outputs, model, model.params)
  card = model.card
  return Program(function, card.image_size, card.channels, output, _description(model, output))


def verify(model: LoadedModel, path: Path, form: ProgramFormat) -> str:
  """States the largest difference between a model and its file, for random pixels, on the CPU.

  Args:
    model: the model, for a known image size.
    path, form: the file and its format.

  Raises:
    ValueError: the difference is above the bound, or outputs are not finite.
  """
  shape = *sides(model.card.image_size), model.card.channels
  rng = np.random.default_rng(0)
  batches = [rng.integers(0, 256, (size, *shape), dtype=np.uint8) for size in BATCHES]
  run = form.load(path)
  with jax.default_device(jax.local_devices(backend="cpu")[0]):  # computes in float32 everywhere
    compiled = jax.jit(functools.partial(_outputs, model))
    before = [compiled(model.params, pixels) for pixels in batches]
    after = [run(pixels) for pixels in batches]
  difference = export.largest_difference(before, after)
  largest = max(float(np.abs(each).max()) for each in before)
  sizes = " and ".join(map(str, BATCHES))
  words = f"largest difference of the outputs, in batches of {sizes}: {difference:.3g}"
  words += f" of up to {largest:.3g}"
  if not difference <= BOUND * largest:
    raise ValueError(f"{words}, above {BOUND} of the largest.")
  return words


def _outputs(model: LoadedModel, params: dict, pixels: jax.Array) -> jax.Array:
  """What the head gives for pixels (B, S, S, C) uint8, or the features if there is no head."""
  images = normalize(pixels, model.module.dtype)
  logits, features = model.module.apply({"params": params}, images, train=False)
  if model.has_head:
    return logits
  return layers.representation(features, model.card.representation)


def _description(model: LoadedModel, output: str) -> dict:
  """What a user of the file must know: the card, with what differs from files of weights."""
  height, across = sides(model.card.image_size)
  width = model.module.num_classes
  colours = "RGB, " * (model.card.channels == 3)
  meaning = f"in the order of class_names; {model.card.loss} gives probabilities"
  if not model.has_head:
    width = model.module.feature_width()
    meaning = "the weights have no head"
  elif model.card.projection:
    meaning = "in the space that the encoder of texts shares"
  return cards.values_of(model.card) | {
    "pixels": f"{colours}0 to 255; the program scales them itself",
    "preparation": cards.preparation_in_words(model.card),
    "input": f"{INPUT}: uint8 (batch, {height}, {across}, {model.card.channels})",
    "output": f"{output}: float32 (batch, {width}), {meaning}",
  }
