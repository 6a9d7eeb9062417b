"""Parameters in files. The suffix gives the format; blocks are always stored unstacked."""

from vit_jax.config import Size
from vit_jax.models.family import Network
from vit_jax.models.recognition import module_of, settings_of
from vit_jax.models.stacking import unstack_blocks
from vit_jax.storage.files import is_file
from vit_jax.storage.paths import local_path
from vit_jax.weights.card import Card, inferred, path_beside
from vit_jax.weights.fit import fit, table
from vit_jax.weights.format import WeightFormat, Weights
from vit_jax.weights.source import format_to_write, read, trained_on, versions, write
from vit_jax.weights.workdir import of_run

__all__ = [
  "Card",
  "WeightFormat",
  "Weights",
  "fit",
  "format_to_write",
  "inferred",
  "load",
  "of_run",
  "read",
  "save",
  "table",
  "trained_on",
  "versions",
  "write",
]


def load(path) -> dict:
  """Reads parameters as NumPy arrays in float32, in the tree of a model with scan=False.

  If a run has a moving average of its parameters, reads the average.

  Args:
    path: *.npz, *.msgpack or *.safetensors, a folder of Hugging Face or timm, a run's workdir, or
      one of its checkpoints.

  Raises:
    ConfigError: the path does not exist, or is of no known format.
    ValueError: the content does not match the format that the name says.
    OSError: the file cannot be read.
    CheckpointError: the checkpoint is damaged, or there is none.
  """
  return read(path).params


def save(path, params: dict, module: Network | None = None, *, image_size: Size = 0):
  """Writes parameters; replaces an existing file only when the new one is complete.

  With their module, a card says how the model computes. Without it, what parameters do not show is
  lost: rotary positions, windows, places of norms, and an activation or an epsilon of norms other
  than the published models'. Names of classes, the loss, the datasets of training, whether the head
  projects as CLIP's does, and how images and position embeddings are resized are lost in both
  cases. `write(path, model.read)` keeps all that `vit_jax.load` found; for other parameters of a
  loaded model, `write(path, Weights(params, model.card))`, without a head if the weights have none.

  Args:
    path: *.npz, *.msgpack or *.safetensors; with `module` also a folder, in Transformers' format.
    params: tree of a model with scan=True or scan=False.
    module: the model of the parameters.
    image_size: side of the images in pixels, or (height, width), kept with `module`; 0: that of the
      position embeddings. Fixed ones, and a folder of a model without any, need it.

  Raises:
    ConfigError: no format has this suffix.
    ValueError: the format cannot express the model or needs a card or the image size, the module
      is of no family or not that of the parameters, or there is the card of another file.
    OSError: the file cannot be written.
  """
  if module is not None:
    single = unstack_blocks(params)
    known = settings_of(module)
    module_of(single, known)
    size = image_size or module.size_of(single)
    write(path, Weights(single, Card(size, model=known, guessed=True)))
    return
  if image_size:
    raise ValueError("image_size is kept with the module; give both.")
  path = local_path(path)
  form = format_to_write(path)
  if not form.suffix:
    raise ValueError(
      f"{form.words} states how its model computes, which parameters alone do not tell; write it "
      "with vit-jax export, or vit_jax.weights.write(path, Weights(params, card))."
    )
  if is_file(path_beside(path)):
    raise ValueError(
      f'"{path_beside(path)}" is the card of other weights; delete it, or give another name.'
    )
  form.save(path, unstack_blocks(params), None)
