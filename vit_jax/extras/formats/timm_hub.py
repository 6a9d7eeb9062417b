"""Reads weights with timm's config.json beside them, such as a folder that timm has on the Hub.

The config has the model's name, and says how images are prepared. If the mean and deviation of
pixels are not this project's, they are folded into the patch embedding.
"""

import functools
import logging
import math
import pathlib
import re
from typing import NamedTuple

from vit_jax import models
from vit_jax.config import AUTO, MAX_SIDE, Model, Size, as_size, sides
from vit_jax.config.data import FILTERS
from vit_jax.config.model import USUAL, translated
from vit_jax.extras.formats import pickled, shards, timm, whole_patches
from vit_jax.extras.formats.model_type import PROBLEMS, loss_of
from vit_jax.models.layers import ACTIVATIONS
from vit_jax.models.recognition import module_of
from vit_jax.process.text import listed
from vit_jax.weights import card, pixels, prefixes, safetensors
from vit_jax.weights.card import (
  TEXTS,
  Card,
  Rule,
  checked,
  number,
  of_channels,
  one_of,
  or_none,
  read_json,
  rectangle,
  three,
  whole,
)
from vit_jax.weights.fit import fit
from vit_jax.weights.format import Heads, WeightFormat

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
SUFFIX = ".safetensors"
# Arguments of timm's models that change nothing here, or follow from its arrays.
_ARGUMENTS = {
  *("final_norm", "proj_bias", "use_fc_norm", "num_reg_tokens", "scale_attn_norm"),
  "scale_mlp_norm",
  *("patch_size", "num_classes", "depth", "mlp_ratio", "qkv_bias", "qk_norm", "init_values"),
  *("reg_tokens", "class_token", "no_embed_class", "pre_norm", "fc_norm", "drop_rate"),
  *("pos_drop_rate", "patch_drop_rate", "proj_drop_rate", "attn_drop_rate", "drop_path_rate"),
  *("weight_init", "fix_init"),
}
# Our name: timm's.
_POOLS = {
  "class_token": "token",
  "distilled": "token",
  "gap": "avg",
  "gap_beside_token": "avg",
  "map": "map",
  "map_of_all": "map",
  "map_with_token": "map",
}
_OF_ALL_TOKENS = ("map_of_all", "map_with_token")  # the others leave out those before the patches
_OF_ONE_GRID = re.compile(r".*\.(relative_position_bias_table|rel_pos_[hw])")
_PATCHES = "patch_embed.proj.weight"
# Settings that only the name of an architecture tells.
_BY_NAME = ("norm_epsilon", "norm_place", "rotary", "rotary_side", "window", "global_blocks")
_A_NAME = Rule(lambda x: isinstance(x, str), "a name")
_SIDE = whole(1, MAX_SIDE)
_LABELS = Rule(
  lambda x: x is None or TEXTS.test(x) or _is_numbered(x),
  f"{TEXTS.words}, or texts by the numbers of classes",
)
COMPUTED = {
  "architecture": (_A_NAME, ""),
  "global_pool": (or_none(_A_NAME), None),
  "label_names": (_LABELS, None),
  "problem_type": (PROBLEMS, None),  # of Transformers' TimmWrapper
}
ARGUMENTS = {
  "img_size": (or_none(rectangle(1, MAX_SIDE)), None),
  "in_chans": (or_none(whole(1, 1024)), None),
  "embed_dim": (or_none(whole(1, 10**5)), None),
  "num_heads": (or_none(whole(1, 10**4)), None),
  "act_layer": (one_of(*ACTIVATIONS, None), None),
  "global_pool": (or_none(_A_NAME), None),
  "dynamic_img_size": (one_of(True, False, None), None),
  "strict_img_size": (one_of(True, False, None), None),
  "pool_include_prefix": (one_of(True, False, None), None),
}
# Defaults of timm's PretrainedCfg; a missing size follows from the position embeddings.
IMAGES = {
  "mean": (of_channels(number(-10, 10)), [0.485, 0.456, 0.406]),
  "std": (of_channels(number(0.001, 1000)), [0.229, 0.224, 0.225]),
  "input_size": (or_none(three(_SIDE)), None),
  "crop_pct": (number(0.1, 1), timm.CROP),
  "crop_mode": (one_of("center", "squash"), "center"),
  "interpolation": (one_of(*FILTERS), "bicubic"),
  "label_names": (_LABELS, None),
  "global_pool": (or_none(_A_NAME), None),
}
_log = logging.getLogger(__name__)


class Described(NamedTuple):
  """The content of timm's config.json.

  Attributes:
    settings: about the model.
    images: how they are prepared.
    arguments: of the model.
  """

  settings: dict
  images: dict
  arguments: dict


def _is_numbered(value) -> bool:
  """Whether a value is {number of a class: its name}."""
  return isinstance(value, dict) and all(
    key.isdecimal() and key.isascii() and len(key) < 7 and isinstance(name, str)
    for key, name in value.items()
  )


def _recognises(path: pathlib.Path) -> bool:
  """Whether a path is such a folder, or a file in it that this project did not write."""
  config = _folder(path) / CONFIG
  if not config.is_file():
    return False
  if path.is_dir():
    return isinstance(read_json(config).get("architecture"), str)
  if path.suffix != SUFFIX or safetensors.has_card(path) or _is_of_another(path):
    return False
  return isinstance(read_json(config).get("architecture"), str)


def _is_of_another(path: pathlib.Path) -> bool:
  """Whether the names in a file are those of another library, such as OpenCLIP."""
  return safetensors.library_of(path) not in ("", timm.NAMES.name)


def _folder(path: pathlib.Path) -> pathlib.Path:
  return path if path.is_dir() else path.parent


def _settings(path: pathlib.Path) -> Described:
  file = _folder(path) / CONFIG
  return describe(read_json(file), file)


def describe(settings: dict, file: pathlib.Path) -> Described:
  """The content of timm's config.json, checked.

  Args:
    settings: the content.
    file: that holds it.

  Raises:
    ValueError: it asks for something that this project does not compute.
  """
  if "pretrained_cfg" not in settings:  # as earlier versions of timm wrote it
    settings = {"label_names": settings.get("labels")} | settings
  images = settings.get("pretrained_cfg", settings)
  arguments = settings.get("model_args") or {}
  if not isinstance(images, dict) or not isinstance(arguments, dict):
    raise ValueError(f"its {file.name} does not describe a model of timm")
  images = {key: value for key, value in images.items() if value is not None}
  if unknown := sorted(set(arguments) - _ARGUMENTS - set(ARGUMENTS)):
    raise ValueError(
      f"its model was made with {', '.join(unknown)}, which this project does not know"
    )
  meaning = translated(settings["architecture"])
  if meaning and meaning.lacking:
    raise ValueError(f"it is a {settings['architecture']}, with {meaning.lacking}")
  return Described(
    checked(settings, COMPUTED, file),
    checked(images, IMAGES, file),
    checked(arguments, ARGUMENTS, file),
  )


def _weights(path: pathlib.Path) -> pathlib.Path:
  """The file with the arrays: the path itself, or the one in the folder.

  Raises:
    ValueError: there is no file, there are several, or they are shards.
  """
  if path.is_file():
    return path
  if (path / WEIGHTS).is_file():
    return path / WEIGHTS
  if shards.are_in(path):
    raise ValueError(
      "its weights are in shards, which are not read of timm's models; save them in one file: "
      'save_pretrained(FOLDER, max_shard_size="1TB")'
    )
  found = sorted(path.glob(f"*{SUFFIX}"))
  if len(found) > 1:
    raise ValueError(f"it holds {listed([file.name for file in found])}; name one of them")
  if not found:
    raise ValueError(pickled.advice_in(path) or f"it has no {WEIGHTS}")
  return found[0]


def _load(path: pathlib.Path) -> dict:
  described = _settings(path)
  return loaded(safetensors.load_arrays(_weights(path)), described)


def loaded(flat: dict, described: Described) -> dict:
  """The parameters of arrays under timm's names, as the model has them that is described.

  Raises:
    ValueError: they are of another model, or ours do not compute the same.
  """
  settings, images, arguments = described
  if not _is_known(settings["architecture"]):
    timm.check_told(flat)
  usual = functools.partial(_usual, settings["architecture"])
  width = arguments["embed_dim"] or usual("width", 0)
  heads = Heads(arguments["num_heads"] or usual("heads", 0), usual("pool_heads", 0))
  patch = flat[_PATCHES].shape[2:] if _PATCHES in flat else (1, 1)
  covered = functools.partial(whole_patches.covered, patch=patch)
  positions = covered(_size_of_positions(images, arguments)) if _has_positions(flat) else 0
  params = timm.from_timm(flat, heads, positions)
  params = _for_images(params, positions, covered(_size_of_images(images, arguments)))
  _check_sizes(params, width=width, channels=arguments["in_chans"] or 0)
  _pool(params, settings, images, arguments)
  return pixels.folded(params, images["mean"], images["std"])


def _has_positions(names) -> bool:
  """Whether arrays are for images of one size."""
  return "pos_embed" in names or any(_OF_ONE_GRID.fullmatch(x) for x in names)


def _size_of_positions(images: dict, arguments: dict) -> Size:
  """The size of the images that the position embeddings are for; 0 if unknown."""
  if arguments["img_size"]:
    return as_size(arguments["img_size"])
  return as_size((images["input_size"] or [0, 0, 0])[1:])


def _size_of_images(images: dict, arguments: dict) -> Size:
  """The size of the model's input images, for which it may resize the positions; 0 if unknown."""
  resizes = arguments["dynamic_img_size"] or arguments["strict_img_size"] is False
  if resizes and images["input_size"]:
    arguments = arguments | {"img_size": None}
  return _size_of_positions(images, arguments)


def _for_images(params: dict, old: Size, new: Size) -> dict:
  """The parameters with position embeddings for images of size `new`.

  Those of squares stay for their own size, which their number tells (`recognition.patch_grid`).
  """
  if old in (0, new) or not (isinstance(old, tuple) or isinstance(new, tuple)):
    return params
  module = module_of(params)
  grids = dict(old_grid=module.grid(*sides(old)), grid=module.grid(*sides(new)))
  wanted = module.parameter_shapes(new)
  return fit(params, wanted, **grids, position_resizing=timm.POSITION_RESIZING)[0]


def _check_sizes(params: dict, **sizes: int):
  """Checks that the configuration belongs to these weights, since the heads depend on it.

  Raises:
    ValueError: the arrays have other sizes, such as another width; 0: it says none.
  """
  module = module_of(params)
  for name, size in sizes.items():
    of_arrays = getattr(module, name, 0)
    if size not in (0, of_arrays) and "Transformer" in params:
      raise ValueError(
        f"its configuration is of a model of {name} {size}, and its arrays are of one of {name} "
        f"{of_arrays}; put the configuration of these weights beside them"
      )


def _pool(params: dict, settings: dict, images: dict, arguments: dict) -> str:
  """How the model pools, by our name; AUTO for a model that has no choice.

  Args:
    params: its parameters.
    settings, images, arguments: its config.json, whose names of the pooling must agree.

  Raises:
    ValueError: none of ours with such parameters pools so.
  """
  usual = _usual(settings["architecture"], "pool", AUTO)
  stated = [values["global_pool"] for values in (arguments, settings, images)]
  stated = [pool for pool in stated if pool is not None]
  if "head" not in params:
    stated = [pool for pool in stated if pool]  # "": timm's model gives the tokens, not pooled
  kinds = [usual, *(pool for pool, theirs in _POOLS.items() if theirs in stated)]
  found = [getattr(module_of(params, Model(pool=kind)), "pool", AUTO) for kind in kinds]
  right = [kind for kind in found if all(pool == _POOLS.get(kind, "avg") for pool in stated)]
  if not right:
    theirs = _POOLS.get(found[0], "avg")
    other = next(pool for pool in stated if pool != theirs)
    raise ValueError(
      f"it pools by {other!r} (global_pool), and models here with such parameters by {theirs!r}"
    )
  of_all = arguments["pool_include_prefix"]
  if of_all is None:
    of_all = usual in _OF_ALL_TOKENS
  for kind in right:
    if _POOLS.get(kind) in (None, "token") or not _tokens_before(params, kind):
      return kind
    if (kind in _OF_ALL_TOKENS) == of_all:
      return kind
  over = {True: "all tokens", False: "the patches alone"}
  raise ValueError(
    f"its pooling is over {over[of_all]} (pool_include_prefix), and that of models here with such "
    f"parameters over {over[not of_all]}"
  )


def _tokens_before(params: dict, pool: str) -> int:
  """The tokens before the patches in a model that pools so."""
  return module_of(params, Model(pool=pool)).tokens_before()


def _card(path: pathlib.Path, params: dict | None) -> Card | None:
  if not params:
    return None  # nothing records what they were trained on
  return card_of(path, params, safetensors.names_in(_weights(path)), _settings(path))


def card_of(path: pathlib.Path, params: dict, names: list[str], described: Described) -> Card:
  """The card of a model of timm.

  Args:
    path: of the weights.
    params: its parameters, from `loaded`.
    names: of the arrays in the file.
    described: the model.
  """
  settings, images, arguments = described
  name = settings["architecture"]
  if not _is_known(name):
    _log.warning(
      "%s: timm's model %r is not known here. Taken as usual in timm, where its configuration does "
      "not say otherwise: %s.",
      path,
      name,
      timm.USUALLY,
    )
  module = module_of(params)
  told = timm.usual_fields(params, prefixes.renamed(names))
  labels = settings["label_names"] or images["label_names"] or ()
  size = _size_of_images(images, arguments) or card.inferred(params).image_size
  whole_images = Card(
    image_size=size,
    resize=_resize(size, images["crop_pct"], images["crop_mode"]),
    squeeze=images["crop_mode"] == "squash" and images["crop_pct"] < 1,
    resampling=f"torchvision_{images['interpolation']}",
    position_resizing=timm.POSITION_RESIZING,
    class_names=_class_names(labels, module.num_classes),
    loss=loss_of(settings["problem_type"]),
    model=Model(
      stem_norms=timm.stem_norms(params),
      channels=module.channels,
      activation=arguments["act_layer"] or _activation(name, params),
      pool=_pool(params, settings, images, arguments),
      **{key: _usual(name, key, told.get(key, USUAL[key])) for key in _BY_NAME},
    ),
    projection=timm.projects(params, name, labels),
    model_guessed=not (_is_known(name) or arguments["act_layer"]),
  )
  return whole_patches.of_card(whole_images, getattr(module, "patch", 1), "timm")


def _activation(name: str, params: dict) -> str:
  """The activation of a model of timm with this name, if it has the MLPs of these parameters.

  Authors may pass another MLP in code with its activation, which no configuration then shows.
  """
  usual = timm.activation_of(params)
  mlp = getattr(module_of(params), "mlp", USUAL["mlp"])
  of_name = _usual(name, "mlp", mlp)
  if of_name == mlp:
    return _usual(name, "activation", usual)
  _log.warning(
    "timm's %s has a %s MLP, and these arrays have a %s one. Their activation is taken as usual, "
    "which is %s; if it is another, name it among the model's arguments in the configuration, such "
    'as "act_layer": "gelu".',
    *(name, of_name, mlp, usual),
  )
  return usual


def _class_names(labels: list | dict, classes: int) -> tuple[str, ...]:
  """The names of all classes; those that a dictionary leaves out are called by their number."""
  if not isinstance(labels, dict):
    return tuple(labels)
  names = {int(number): name for number, name in labels.items()}
  return tuple(names.get(i, f"class {i}") for i in range(max(classes, max(names) + 1)))


def _resize(size: Size, share: float, mode: str) -> Size:
  """The size that images are resized to cover; 0 if they are resized to their size directly."""
  resize = as_size([math.floor(side / share) for side in sides(size)])
  if mode == "squash" and resize == size:
    return 0
  return resize


def _is_known(architecture: str) -> bool:
  """Whether the name of a model of timm tells how it computes."""
  meaning = translated(architecture)
  return meaning is not None and meaning.same


def _usual(architecture: str, field: str, default):
  """A field of our model for timm's architecture; `default` without such a model or field."""
  if not _is_known(architecture):
    return default
  return getattr(models.create(architecture), field, default)


TIMM = WeightFormat(
  words="a folder of timm", recognises=_recognises, load=_load, card=_card, beside=(CONFIG,)
)
