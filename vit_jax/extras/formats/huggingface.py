"""Weights as a folder of Transformers: config.json, and arrays in model.safetensors or shards.

The "model_type" in config.json leads to a line of `registry.MODEL_TYPES`. Exports write the first
type that has a place for the model.
"""

import dataclasses
import json
import logging
import pathlib
import re

from vit_jax.config import AUTO, Model, Size, in_pixels, sides
from vit_jax.config.model import FIXED_POSITIONS, USUAL
from vit_jax.data import datasets
from vit_jax.extras.formats import huggingface_images as images
from vit_jax.extras.formats import huggingface_notes as notes
from vit_jax.extras.formats import pickled, shards, whole_patches
from vit_jax.extras.formats.model_type import (
  ACTIVATIONS,
  PROBLEM_TYPES,
  ModelType,
  activation_of,
  loss_of,
)
from vit_jax.models.family import Network
from vit_jax.models.recognition import module_of
from vit_jax.process.text import listed, shown
from vit_jax.registry import MODEL_TYPES
from vit_jax.storage.files import write_text
from vit_jax.storage.tree import flatten, nest
from vit_jax.weights import card as cards
from vit_jax.weights import pixels, safetensors
from vit_jax.weights.card import Card, inferred
from vit_jax.weights.fit import fit
from vit_jax.weights.format import WeightFormat
from vit_jax.weights.positions import is_fixed
from vit_jax.weights.translation import THEIRS

CONFIG = "config.json"
# What other models have and ours do not, by their model_type.
LACKING = {
  "data2vec-vision": "its own relative position embeddings",
  "swin": "windows of attention",
  "swinv2": "windows of attention",
}
WHOLE = ("architectures", "model_type", "problem_type", "id2label", "quantization_config")
OLDEST = "vit"  # the type of a file that names none
CLASSIFIER = "ForImageClassification"  # in the names of all classes whose outputs are classes
SAVED_BY = "transformers_version"  # which the library adds when it saves a model again
TRAINED_ON = "vit_jax_trained_on"  # a key of our own, as "representation" and "average" are
_log = logging.getLogger(__name__)


def _type_in(values: dict) -> ModelType:
  """The model type that config.json names.

  Raises:
    ValueError: it is not known here.
  """
  name = values.get("model_type", OLDEST)
  if isinstance(name, str) and name in LACKING:
    raise ValueError(
      f"it has {LACKING[name]} (model_type {name!r}), which no model of this project has"
    )
  if not isinstance(name, str) or name not in MODEL_TYPES:
    raise ValueError(f"model_type is {shown(name)} in {CONFIG}; read are {', '.join(MODEL_TYPES)}")
  return MODEL_TYPES[name]


def _settings_in(folder: pathlib.Path) -> tuple[ModelType, dict]:
  """The model type of a folder, and the settings of its image encoder.

  Raises:
    ValueError: the model computes something else than models of this project.
  """
  values = cards.read_json(folder / CONFIG)
  kind = _type_in(values)
  if kind.part:
    values = _of_part(values, kind.part)
  return kind, cards.checked(values, kind.computed, folder / CONFIG)


def _of_part(values: dict, part: str) -> dict:
  """The settings of the image encoder, with those of the whole model.

  Old files of the library may hold them a second time, under a key of its own, which wins.

  Raises:
    ValueError: they are missing.
  """
  inner = values.get(f"{part}_dict") or values.get(part, {})
  if not isinstance(inner, dict):
    raise ValueError(f"{part} is {shown(inner)} in {CONFIG} and must describe the image encoder")
  others = {key: value for key, value in inner.items() if key not in WHOLE}
  return others | {key: values[key] for key in WHOLE if key in values}


def _load(folder: pathlib.Path) -> dict:
  kind, settings = _settings_in(folder)
  if not shards.are_in(folder):
    raise ValueError(
      pickled.advice_in(folder)
      or f"it has no {shards.WEIGHTS} and no {shards.INDEX}; save the model with "
      "save_pretrained(..., safe_serialization=True)"
    )
  flat = _without_prefix(kind, _arrays(folder, kind))
  if lacking := kind.table().lacking(flat, THEIRS):
    raise ValueError(f"{lacking[0]!r} is not part of a {settings['architectures'][0]}")
  translated = kind.table().ours(flat, settings["num_attention_heads"])
  params = nest(kind.here(translated, settings))
  _check_sizes(kind, params, settings)
  prepared = _prepared(folder, kind, settings)
  if images.values_in(folder)[0] is None:
    _log.warning(
      "%s has no %s. Taken as usual for its model_type: pixels from 0 to 1 with mean %s and "
      "deviation %s. If its images are others, put the file of its processor there.",
      folder,
      images.FILE,
      *(prepared.mean, prepared.deviation),
    )
  return pixels.folded(params, prepared.mean, prepared.deviation)


def _arrays(folder: pathlib.Path, kind: ModelType) -> dict:
  """The arrays that features of images need; names the others."""
  others = {name for name in shards.names_in(folder) if re.fullmatch(kind.left_out, name)}
  if others:
    _log.warning(
      "Left out, because features of images do not need them: %s.", listed(sorted(others))
    )
  return shards.load(folder, lambda name: name not in others)


def _without_prefix(kind: ModelType, flat: dict) -> dict:
  """The arrays under the names of a model without a head.

  Raises:
    ValueError: two arrays get the same name.
  """
  named = {name.removeprefix(kind.prefix): array for name, array in flat.items()}
  if len(named) < len(flat):
    raise ValueError(f"it holds arrays twice, with and without {kind.prefix!r} before their names")
  return named


def _check_sizes(kind: ModelType, params: dict, settings: dict):
  """Checks the sizes in config.json against those of the arrays.

  Raises:
    ValueError: they differ.
  """
  module = module_of(params, Model(**_known(kind, settings)))
  if unlike := kind.unlike(module):
    raise ValueError(f"its arrays are of a model with {unlike[0]}, unlike {kind.plain}")
  sizes = kind.sizes(module) | {"num_channels": module.channels}
  if settings["architectures"][0] in (kind.plain, kind.headed):
    sizes["architectures"] = [kind.class_of(flatten(params))]
  size = module.size_of(params)
  if size and isinstance(settings["image_size"], int):
    sizes["image_size"] = size + settings["image_size"] % min(sides(module.patch))
  for key, size in sizes.items():
    if settings.get(key) != size:
      raise ValueError(f"{key} is {settings.get(key)!r} in {CONFIG}, and {size} by the arrays")


def _known(kind: ModelType, settings: dict) -> dict:
  """Fields of the model's settings that the parameters do not show."""
  return {
    "activation": activation_of(settings["hidden_act"]),
    "norm_epsilon": settings["layer_norm_eps"],
    "positions": settings["positions"],
    **kind.known(settings),
  }


def _prepared(folder: pathlib.Path, kind: ModelType, settings: dict) -> images.Prepared:
  """How images are prepared; without a file about it, as the type's processor does by default.

  Raises:
    ValueError: this project cannot prepare them so, or the size is not the model's.
  """
  side = settings["image_size"]
  prepared = images.read_processor(folder, kind.processor) or kind.prepared(side)
  if prepared.size != side and not kind.resizes:
    raise ValueError(
      f"its image processor makes images of {prepared.size} pixels, and image_size is {side} in "
      f"{CONFIG}"
    )
  return prepared


def _card(folder: pathlib.Path, params: dict | None) -> Card | None:
  kind, settings = _settings_in(folder)
  prepared = _prepared(folder, kind, settings)
  usual_resampling = ""
  usual_position_resizing = kind.position_resizing
  if TRAINED_ON in settings:  # an export of ours; older ones do not say how to resize
    usual_resampling = Card.resampling
    usual_position_resizing = Card.position_resizing
  resampling = settings["resampling"] or usual_resampling
  saved_again = SAVED_BY in settings  # perhaps trained further there, with a head
  representation = settings["representation"]
  if saved_again and "head" in (params or {}):
    representation = Card.representation
  whole_images = Card(
    image_size=prepared.size,
    resize=prepared.resize,
    squeeze=prepared.squeeze,
    resampling=images.resampling_of(prepared, resampling),
    position_resizing=settings["position_resizing"] or usual_position_resizing,
    class_names=_class_names(settings),
    loss=loss_of(settings["problem_type"]),
    model=Model(**_known(kind, settings), channels=settings["num_channels"]),
    representation=representation,
    trained_on=datasets.read_history(settings.get(TRAINED_ON, [])),
    average=settings["average"] and not saved_again,
    projection=kind.projection and "head" in (params or {}),
    guessed=images.values_in(folder)[0] is None,
  )
  if whole_images.model.positions in FIXED_POSITIONS and params:
    whole_images = _with_trained_positions(params, whole_images)
  return whole_patches.of_card(whole_images, settings["patch_size"], "Transformers")


def _with_trained_positions(params: dict, card: Card) -> Card:
  """The card; with learned positions if Transformers has trained the table of fixed ones."""
  if is_fixed(params, card):
    return card
  return dataclasses.replace(card, model=dataclasses.replace(card.model, positions="1d"))


def _class_names(settings: dict) -> tuple[str, ...]:
  """The names of the classes; () for a model without a classifier."""
  if CLASSIFIER not in settings["architectures"][0]:
    return ()
  classes = settings.get("id2label")
  if classes is None:  # transformers' own names, which it does not write
    classes = {"0": "LABEL_0", "1": "LABEL_1"}
  if not isinstance(classes, dict) or set(classes) != {str(i) for i in range(len(classes))}:
    raise ValueError("id2label must name the classes 0, 1, 2, ...")
  return tuple(str(classes[str(i)]) for i in range(len(classes)))


def _save(folder: pathlib.Path, params: dict, card: Card | None):
  card = card or inferred(params)
  module = module_of(params, dataclasses.replace(card.model, family=AUTO))
  _check_squares(images=card.image_size, patches=getattr(module, "patch", 0))
  name, kind = _type_for(module, flatten(params), projection=card.projection)
  if not card.image_size:
    raise ValueError(
      f"{CONFIG} states the size of its images, which its parameters do not tell; give image_size"
    )
  if not (kind.resizes and card.position_resizing == kind.position_resizing):
    params = _at_size(params, card)
  flat = flatten(params)
  settings = {"architectures": [kind.class_of(flat)], "model_type": name}
  settings |= kind.sizes(module) | kind.written_with(module) | _settings(params, card, module)
  if (folder / CONFIG).exists():
    _settings_in(folder)  # a folder of another kind is not replaced
  if (folder / images.OF_SEVERAL).exists():
    raise ValueError(
      f"its {images.OF_SEVERAL} would be read before the {images.FILE} that is written; remove it, "
      "or name a new folder"
    )
  folder.mkdir(parents=True, exist_ok=True)
  safetensors.save_arrays(folder / shards.WEIGHTS, kind.written_arrays(flat), {})
  prepared = images.written(card, module.channels)
  for file, content in ((CONFIG, settings), (images.FILE, prepared)):
    write_text(folder / file, json.dumps(content, indent=2) + "\n")
  notes.write(folder, card)


def _check_squares(**sizes: Size):
  """Checks that images and patches are squares.

  Raises:
    ValueError: some are not.
  """
  for name, size in sizes.items():
    if isinstance(size, tuple):
      raise ValueError(
        f"its {name} are {in_pixels(size)} pixels (height x width), and a folder of Hugging Face "
        "is written for squares only; export it as NAME.safetensors"
      )


def _at_size(params: dict, card: Card) -> dict:
  """The parameters with position embeddings for the card's image size, which their model needs."""
  module = module_of(params)
  size = card.image_size
  if size in (0, inferred(params).image_size) or not inferred(params).image_size:
    return params
  grid = module.grid(*sides(size))
  shapes = module.parameter_shapes(size)
  return fit(params, shapes, grid, position_resizing=card.position_resizing)[0]


def _type_for(module: Network, flat: dict, *, projection: bool) -> tuple[str, ModelType]:
  """The first model type that has a place for a module, and its name.

  Args:
    module: the module.
    flat: its parameters by name.
    projection: whether its head is a projection.

  Raises:
    ValueError: there is none; names what the nearest type lacks.
  """
  found = {}
  for name, kind in MODEL_TYPES.items():
    if kind.written:
      fields = kind.unlike(module)
      lacking = [] if fields else kind.lacking(module, flat, projection=projection)
      found[name] = fields, lacking
  name = min(found, key=lambda name: [*map(len, found[name])])
  fields, names = found[name]
  kind = MODEL_TYPES[name]
  if fields or names:
    what = (fields or names)[0]
    raise ValueError(f"Hugging Face's {kind.class_of(flat)} has no place for {what}.")
  return name, kind


def _settings(params: dict, card: Card, module: Network) -> dict:
  """The keys of config.json that follow from the card."""
  known = {key: value for key, value in vars(card.model).items() if value != AUTO}
  model = USUAL | {"positions": "none"} | known
  names = card.class_names
  if not names and "head" in params and not card.projection:
    names = tuple(f"class {i}" for i in range(params["head"]["bias"].size))
  return {
    "hidden_act": ACTIVATIONS[model["activation"]][0],
    "layer_norm_eps": model["norm_epsilon"],
    "num_channels": module.channels,
    "image_size": inferred(params).image_size or card.image_size,
    "id2label": {str(i): name for i, name in enumerate(names)},
    "label2id": {name: i for i, name in enumerate(names)},
    # Tells transformers' pipelines whether to use softmax or sigmoid.
    "problem_type": PROBLEM_TYPES[card.loss],
    "representation": card.representation,
    "average": card.average,
    "positions": model["positions"],
    "resampling": card.resampling,
    "position_resizing": card.position_resizing,
    TRAINED_ON: datasets.history_as_dicts(card.trained_on),
    "torch_dtype": "float32",
  }


HUGGING_FACE = WeightFormat(
  words="a folder of Hugging Face",
  recognises=lambda path: (path / CONFIG).is_file(),
  load=_load,
  save=_save,
  card=_card,
  refusal=pickled.refusal,
)
