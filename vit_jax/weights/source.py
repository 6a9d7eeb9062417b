"""Reads parameters from a file, a Hugging Face folder, a workdir or a checkpoint; writes them."""

import dataclasses
import functools
import logging
import pathlib

from vit_jax.config import ConfigError
from vit_jax.data import history
from vit_jax.data.history import History
from vit_jax.models import ResNet, ViT
from vit_jax.models.recognition import module_of
from vit_jax.models.stacking import unstack_blocks
from vit_jax.storage import checkpoint, files
from vit_jax.storage.tree import flatten
from vit_jax.storage.workdir import STARTS
from vit_jax.weights import average as averages
from vit_jax.weights import card, huggingface, msgpack, npz, safetensors, timm_hub
from vit_jax.weights.card import Card, inferred

_log = logging.getLogger(__name__)
FILES = {".npz": npz, ".msgpack": msgpack, ".safetensors": safetensors}


@dataclasses.dataclass(frozen=True)
class Weights:
  """Parameters, and what is known about them.

  Attributes:
    params: NumPy arrays, blocks unstacked.
    card: how images are prepared, and the classes; None: unknown.
    settings: for a checkpoint, the settings that its run recorded.
  """

  params: dict
  card: Card | None
  settings: dict | None = None

  def class_names(self) -> tuple[str, ...]:
    """Names of the head's outputs; () if they are unknown."""
    return self.card.class_names if self.card else ()


def read(path: pathlib.Path, *, step: int = 0, average: bool = True) -> Weights:
  """Reads parameters, and what is known about them.

  Args:
    path: *.npz, *.msgpack or *.safetensors, with its card NAME.json beside it or without; a Hugging
      Face folder; a run's workdir, or one of its checkpoints.
    step: which checkpoint of a workdir; 0: the newest.
    average: of a checkpoint with a moving average of the parameters, read the average; False: the
      parameters themselves.

  Raises:
    ConfigError: the path does not exist, is another kind of folder, or has no such step.
    ValueError: the content does not match the format that the name says.
    OSError: the file cannot be read.
    CheckpointError: the checkpoint is damaged, or there is none.
  """
  if not path.exists():
    raise ConfigError(f"{path} does not exist; give weights, a folder of them, or a workdir.")
  workdir, steps = checkpoint.named_by(path)
  if not steps and (step or not average):
    raise ConfigError(
      f"{path} has no checkpoints to choose a step or a moving average from; leave that choice out."
    )
  if path.is_file() and not timm_hub.tells_of(path):
    params = format_of(path).load(path)
    known, said_in = _card_of(path)
    return checked(Weights(params, known or _usual(path, params)), said_in)
  if step and steps and step not in steps:
    raise ConfigError(
      f"{path} has no checkpoint of step {step}; its steps are {', '.join(map(str, steps))}."
    )
  if steps:
    named = workdir != path.absolute()
    return of_run(workdir, steps[0] if named else step, average)[1]
  if (path / STARTS).is_file():
    raise ConfigError(
      f"{path} is a run without checkpoints: none has been saved yet, or they were removed."
    )
  if timm_hub.tells_of(path):
    folder = path if path.is_dir() else path.parent
    return checked(Weights(*timm_hub.read(folder)), folder / timm_hub.CONFIG)
  if (path / huggingface.CONFIG).is_file():
    named = Weights(huggingface.load(path), huggingface.read_card(path))
    return checked(named, path / huggingface.CONFIG)
  raise ConfigError(
    f"{path} is neither a workdir with checkpoints, nor a checkpoint, nor a Hugging Face folder "
    "with config.json."
  )


def _card_of(path: pathlib.Path) -> tuple[Card | None, pathlib.Path]:
  """The card of a file of weights, and the file that holds it.

  Raises:
    ValueError: what is there is no card, or there are two that differ.
  """
  beside = card.path_beside(path)
  outside, inside = card.read(beside), _inside(path)
  if outside and inside and outside != inside:
    raise ValueError(
      f'"{path}" holds another card than "{beside}" beside it, which may be of older weights of '
      "this name; remove the card beside it to take the one inside, or export the weights again."
    )
  return (outside, beside) if outside else (inside, path)


def _inside(path: pathlib.Path) -> Card | None:
  """The card in a file of weights; only one format has a place for it."""
  return safetensors.own_card(path) if format_of(path) is safetensors else None


def _usual(path: pathlib.Path, params: dict) -> Card | None:
  """What the names in a file without a card tell, if they are timm's."""
  return safetensors.usual_card(path, params) if format_of(path) is safetensors else None


def trained_on(path: pathlib.Path, *, step: int = 0) -> History:
  """What the weights at `path` were trained on, read without their parameters; () if unknown.

  Args:
    path, step: as in `read`; there may be nothing.

  Raises:
    ValueError, OSError: a card or the description of a checkpoint is damaged.
  """
  if checkpoint.named_by(path)[1]:
    step, meta = checkpoint.described(path, step)
    return of_description(checkpoint.folder_of(path, step), meta) if meta else ()
  found = None
  if not path.exists() or timm_hub.tells_of(path):
    return ()
  if path.is_file():
    found, _ = _card_of(path)
  elif (path / huggingface.CONFIG).is_file():
    found = huggingface.read_card(path)
  return found.trained_on if found else ()


def of_description(folder: pathlib.Path, meta: dict) -> History:
  """What the description of a checkpoint says that it was trained on; warns if it says nothing.

  Args:
    folder: the checkpoint.
    meta: its description.

  Raises:
    ValueError: it is damaged.
  """
  if "trained_on" not in meta:
    _warn_of_unknown(folder)
  return history.read(meta.get("trained_on", []))


@functools.cache  # once for each checkpoint
def _warn_of_unknown(folder: pathlib.Path):
  _log.warning(
    "%s does not tell what it was trained on, so it cannot be checked whether images are scored "
    "that it was trained on.",
    folder,
  )


def write(path: pathlib.Path, weights: Weights):
  """Writes parameters and their card; the suffix gives the format, no suffix means a folder.

  Without a card, writes one with what the parameters tell.

  Raises:
    ValueError: the suffix is unknown, the format cannot express the model, weights with another
      card have the same name with another suffix, or another command writes there.
    OSError: the file cannot be written.
  """
  known = weights.card or inferred(weights.params)
  form, beside = (format_of(path), card.path_beside(path)) if path.suffix else (None, path)
  files.make_folder(path.parent)
  with files.one_writer(beside):
    if form is None:
      huggingface.save(path, weights.params, known)
    else:
      _check_alone(path, known)
      form.save(path, weights.params, known)
      card.write(beside, known)


def _check_alone(path: pathlib.Path, new: Card):
  """Checks that a card may be written for `path`: files NAME.* share the card NAME.json.

  Raises:
    ValueError: NAME.json is not a card, or another file of weights would get the wrong card.
  """
  beside = card.path_beside(path)
  there = card.read(beside)
  for suffix, form in FILES.items():
    other = path.with_suffix(suffix)
    if other == path or not other.is_file():
      continue
    try:
      now = _inside(other) or there
      if not now:
        params = form.load(other)
        now = _usual(other, params) or inferred(params)
    except ValueError:  # no weights of this project, so it needs no card
      continue
    if now != new:
      raise ValueError(
        f'"{path}" would share the card "{beside}" with "{other}", whose image size, classes or'
        " other settings differ; give another name."
      )


def checked(weights: Weights, named_in: pathlib.Path) -> Weights:
  """Checks that the card, from the file `named_in`, names as many classes as the head has.

  Raises:
    ValueError: the numbers differ.
  """
  names = weights.class_names()
  bias = flatten(weights.params).get("head/bias")
  if names and bias is not None and len(names) != bias.size:
    raise ValueError(
      f"{named_in} names {len(names)} classes; the head of the weights has {bias.size}."
    )
  return weights


def format_of(path: pathlib.Path):
  """The module that reads and writes a file with this suffix.

  Raises:
    ConfigError: no format has this suffix.
  """
  if path.suffix not in FILES:
    raise ConfigError(
      f"{path} ends in {path.suffix!r}, which is no format for weights; known: {', '.join(FILES)}, "
      "and no suffix for a Hugging Face folder."
    )
  return FILES[path.suffix]


def module(weights: Weights, **defaults) -> ViT | ResNet:
  """The module for the weights, unrolled, in float32.

  Args:
    weights: the head may be missing; it then has one output.
    **defaults: activation and norm_epsilon for weights without a card; if left out, those of the
      published weights.

  Raises:
    ValueError: no model of this project has such parameters.
  """
  if weights.card:
    defaults = dict(activation=weights.card.activation, norm_epsilon=weights.card.norm_epsilon)
  return module_of(weights.params, **({} if "resnet" in weights.params else defaults))


def of_run(workdir: pathlib.Path, step: int, average: bool) -> tuple[pathlib.Path, Weights]:
  """The checkpoint of a run, and its weights; arguments as for `read`.

  Raises:
    CheckpointError: the checkpoint is damaged, or there is none.
  """
  return checkpoint.read(workdir, step, lambda folder: of_checkpoint(folder, average))


def of_checkpoint(folder: pathlib.Path, average: bool) -> Weights:
  """Reads the weights of a checkpoint; `average` as in `read`.

  Warns of an average that still holds much of the initial parameters.
  """
  meta = checkpoint.read_meta(folder)
  average = average and any(name.startswith("ema/") for name in meta["arrays"])
  if average:
    share = averages.initial_share(meta["config"]["optimizer"], int(folder.name))
    if said := averages.warning(share):
      _log.warning("%s: %s", folder, said)
  params = checkpoint.load_params(folder, ema=average)
  data, model = meta["config"]["data"], meta["config"]["model"]
  return Weights(
    unstack_blocks(params),
    Card(
      image_size=data["image_size"],
      resize=data["evaluate_resize"],
      class_names=tuple(meta["class_names"]),
      loss=meta["config"]["loss"]["kind"],
      representation=meta.get("representation", card.REPRESENTATIONS[0]),
      trained_on=of_description(folder, meta),
      average=average,
      # Earlier releases lack these settings, and computed with what is now their default.
      **{key: model[key] for key in ("activation", "norm_epsilon") if key in model},
    ),
    meta["config"],
  )
