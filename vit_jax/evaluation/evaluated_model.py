"""The parameters that --mode=evaluate scores: of the workdir's checkpoint, or config.init_from."""

import dataclasses
import pathlib
from collections.abc import Sequence

import jax

from vit_jax import models, weights
from vit_jax.config import Config, ConfigError, RunError
from vit_jax.data import classes
from vit_jax.data.datasets import NamedDataset
from vit_jax.devices import mesh as meshes
from vit_jax.evaluation import effective_settings
from vit_jax.evaluation.effective_settings import Asked, Settings
from vit_jax.evaluation.opening import Evaluations
from vit_jax.inference.model import LoadedModel, of_weights
from vit_jax.learning.objective import OBJECTIVE_PARAMS
from vit_jax.models.stacking import stack_blocks
from vit_jax.process.text import listed
from vit_jax.storage import checkpoint
from vit_jax.storage.paths import path_of

NAME_THEM = (
  "Say in which order the head has the classes with --config.class_names=FILE (a name a line), or "
  "=data for the order of data with as many classes"
)


@dataclasses.dataclass(frozen=True)
class Scored:
  """A model to evaluate, with its settings.

  Attributes:
    settings: the settings of the evaluation (`effective_settings.settings`).
    model: Flax module of the parameters.
    params: NumPy arrays in the module's tree, and what the training objective added, if anything.
    side: size of the images that they were trained on, pixels; 0: it is not known.
    resized: which parameters were resized for config.data.image_size, in words; "": none.
    prepared: how images are prepared, in words.
    representation: what evaluations without a head use, if their settings do not say.
    head: the names of the head's classes, and where they come from; no names: no set uses them.
    origin: where the parameters come from; the first entry of evaluation.json.
  """

  settings: Settings
  model: models.Network
  params: dict
  side: int
  resized: str
  prepared: str
  representation: str
  head: classes.HeadNames
  origin: dict[str, int | str]


def read(
  config: Config,
  evaluations: Evaluations,
  folder: pathlib.Path,
  given: frozenset[str] = frozenset(),
  *,
  average: bool = True,
) -> Scored:
  """Reads the parameters, and finds out which classes they have.

  Args:
    config: the settings.
    evaluations: what they are scored on.
    folder: the workdir.
    given: the settings that the command line names, such as "data.image_size".
    average: as in `weights.read`.

  Raises:
    ConfigError: there are no parameters, or they do not fit the settings or the sets.
    CheckpointError: the checkpoint is damaged.
  """
  of_run = bool(checkpoint.available(folder))
  if of_run:
    path, found = weights.of_run(folder, config.evaluate_step, average)
    name, origin = str(path), {"step": int(path.name)}
  elif config.init_from:
    path = path_of(config.init_from)
    name, origin = f"config.init_from={config.init_from}", {"weights": str(path)}
  else:
    raise ConfigError(
      f"{folder} has no checkpoint to evaluate: name a --workdir that has one, or give weights "
      "with --config.init_from=PATH."
    )
  defaults = dict(activation=config.model.activation, norm_epsilon=config.model.norm_epsilon)
  protocol = not config.duration.given()
  asked = Asked(config.model, config.loss, config.data, given, protocol)
  try:
    if not of_run:
      found = weights.read(path, step=config.evaluate_step, average=average)
    elif "init_from" in given:
      check_same(config.init_from, (found.settings or {}).get("init_from", ""))
    model = of_weights(found, **defaults)
    origin["average"] = model.card.average
    return fitted(model, asked, evaluations, config.class_names, origin)
  except (ValueError, OSError, RunError) as error:
    raise ConfigError(f"{name}: {error}") from error


def check_same(init_from: str, recorded: str):
  """Checks that the command line names no other weights than those that the run started from.

  Raises:
    ConfigError: it does, so it is not clear which are to be scored.
  """
  if init_from != recorded:
    raise ConfigError(
      f"this workdir has checkpoints, which would be scored and not config.init_from={init_from}; "
      "give those weights another --workdir, or leave config.init_from out."
    )


def fitted(
  model: LoadedModel,
  asked: Asked,
  evaluations: Evaluations,
  class_names: str,
  origin: dict[str, int | str],
) -> Scored:
  """The model, prepared for the evaluation.

  Raises:
    ValueError: it is not the model that was asked for, it has other classes, or it has no head and
      a set needs one.
  """
  scored = evaluations.heads()
  if scored and not model.has_head:
    raise ValueError(
      "these weights have no head, so config.data.evaluate cannot be scored with them; "
      "config.few_shot and config.nearest can."
    )
  settings = effective_settings.settings(asked, model)
  head = classes.HeadNames(())
  if scored:
    head = head_names(class_names, scored, model.read, model.module.num_classes)
  sized = model.at_size(settings.data.image_size)
  module = effective_settings.computing(sized.module, settings.model)
  named = asked.protocol and asked.data.image_size and "data.image_size" not in asked.given
  known = bool("data.evaluate_resize" in asked.given or model.read.card or named)
  params = stack_blocks(sized.params) if getattr(module, "scan", False) else sized.params
  own = {key: part for key, part in model.read.params.items() if key == OBJECTIVE_PARAMS}
  return Scored(
    settings=settings,
    model=module,
    params=params | own,
    side=model.card.image_size,
    resized=", ".join(row.detail for row in sized.rows if row.what == "resized"),
    prepared=effective_settings.preparation_in_words(settings.data, head=bool(scored), known=known),
    representation=model.card.representation,
    head=head,
    origin=origin,
  )


def head_names(
  class_names: str, scored: Sequence[NamedDataset], read: weights.Weights, outputs: int
) -> classes.HeadNames:
  """The names of the head's classes, which are all that the sets have.

  Raises:
    ValueError: the head lacks a class of a set, or nothing tells which classes it has.
  """
  sets = [named.source.class_names for named in scored]
  head = classes.of_outputs(class_names, read.class_names(), outputs, sets)
  if not head.names:
    raise ValueError(
      f"nothing names the {outputs} classes of these weights, so they may not be those of "
      f"{scored[0]}, the {len(sets[0])} classes {listed(sets[0], 3)}. {NAME_THEM}."
    )
  for named in scored:
    try:
      classes.matched(named, head.names, "the head")
    except ConfigError as error:
      raise ValueError(
        f"{error} If they are the same under other names: {NAME_THEM[0].lower()}{NAME_THEM[1:]}; "
        "else fine-tune the weights on its classes first, or evaluate them with config.few_shot "
        "or config.nearest."
      ) from error
  return head


def put(params: dict, mesh: jax.sharding.Mesh) -> dict:
  """Puts parameters on the devices; every process puts its own part of each array."""
  return jax.tree.map(meshes.place, params, meshes.state_shardings(mesh, params))
