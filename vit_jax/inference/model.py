"""Loads a model from any source: its module, its parameters and how images are prepared."""

import contextlib
import dataclasses
import functools
import logging
import os
import pathlib
import sys
from collections.abc import Callable, Iterable, Iterator, Sized

import jax
import jax.numpy as jnp
import numpy as np
from PIL import Image

from vit_jax import config as cfg
from vit_jax import models, weights
from vit_jax.config.model import CONFIG_ONLY_FIELDS
from vit_jax.inference import predict as predictions
from vit_jax.inference.predict import Prediction
from vit_jax.learning.losses import PROBABILITIES
from vit_jax.learning.objective import of_model
from vit_jax.models.recognition import UNKNOWN, differences, in_words
from vit_jax.process import progress
from vit_jax.process.text import listed, one_line
from vit_jax.storage.paths import path_of
from vit_jax.storage.tree import flatten
from vit_jax.weights import Weights
from vit_jax.weights.card import Card
from vit_jax.weights.fit import Row

_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class LoadedModel:
  """A model with its parameters.

  Attributes:
    read: the weights as they were read.
    module: Flax module with unrolled blocks, in float32.
    params: NumPy arrays in the module's tree, with unstacked blocks. If the weights have no head,
      a head of zeros for one class is added, so that features can be computed. Parameters that only
      the training objective needs are left out. They are read-only, because a copy stays on the
      device; for others, take `dataclasses.replace(model, params=...)`.
    card: how images are prepared, and the names of the classes; image_size is 0 if not known.
    rows: what `at_size` did to each parameter.
    source: where the weights were read; "" if they were given.
    stored: the model before `at_size`; None: it is this one.
  """

  read: Weights
  module: models.Network
  params: dict
  card: Card
  rows: tuple[Row, ...] = ()
  source: str = ""
  stored: "LoadedModel | None" = dataclasses.field(default=None, init=False, repr=False)

  def __post_init__(self):
    """Makes the arrays read-only, without a copy."""
    object.__setattr__(self, "params", jax.tree.map(read_only, self.params))

  def __repr__(self) -> str:
    """Four lines: model, parameters, classes, source."""
    size = ""
    if self.card.image_size:
      size = f", images of {cfg.in_pixels(cfg.sides(self.card.image_size))} pixels"
    classes = "none"
    if self.card.projection:
      classes = f"none; the head projects to {self.module.num_classes:,} numbers"
    if self.classifies:
      classes = f"{self.module.num_classes:,}: {listed(self.class_names)}"
    count = sum(array.size for array in flatten(self.params).values())
    lines = (
      f"model:      {in_words(self.module)}{size}",
      f"parameters: {count:,}",
      f"classes:    {classes}",
      f"source:     {self.source or 'parameters that were given'}",
    )
    return "\n".join(map(one_line, lines))

  @property
  def has_head(self) -> bool:
    """Whether the weights have a head."""
    return "head" in self.read.params

  @property
  def classifies(self) -> bool:
    """Whether the weights have a head whose outputs are classes."""
    return self.has_head and not self.card.projection

  @property
  def class_names(self) -> tuple[str, ...]:
    """The names of the head's classes, or their numbers if nothing names them; () without them."""
    if not self.classifies:
      return ()
    return self.card.class_names or tuple(f"class {i}" for i in range(self.module.num_classes))

  @functools.cached_property
  def params_on_device(self) -> dict:
    """The parameters on the device, for calls one after the other."""
    return jax.device_put(self.params)

  def probabilities(self, logits: jax.Array) -> jax.Array:
    """Probabilities of logits (..., classes), in float32, by the loss of the weights."""
    return PROBABILITIES[self.card.loss](jnp.float32(logits))

  def at_size(self, size: cfg.Size = 0) -> "LoadedModel":
    """The model for images of another size; 0: the size that the weights are for.

    For another size, position embeddings are resized; the share of each image that is cropped stays
    the same. Both start from the weights as they were read, whatever sizes came between.

    Args:
      size: the side of square images, or (height, width); pixels.

    Raises:
      ValueError: no size is known, the model cannot take images of this size, or a parameter is
        missing or surplus.
    """
    stored = self.stored or self
    of_images = dict(image_size=stored.card.image_size, resize=stored.card.resize)
    card = dataclasses.replace(self.card, **of_images)
    if size:
      card = card.at_size(cfg.as_size(size))
    if not card.image_size:
      raise ValueError(
        "the weights do not tell the size of their images; give image_size (--image-size)"
      )
    wanted = self.module.parameter_shapes(card.image_size)
    rule = card.position_resizing
    grid = self.module.grid(*cfg.sides(card.image_size))
    options = dict(old_grid=stored.stored_grid(), position_resizing=rule)
    params, rows = weights.fit(stored.params, wanted, grid, **options)
    lost = [row.name for row in rows if row.what == "new"]
    if self.has_head and lost:
      raise ValueError(
        f"the weights are damaged: their head does not fit together ({', '.join(lost)})"
      )
    sized = dataclasses.replace(self, params=params, card=card, rows=tuple(rows))
    object.__setattr__(sized, "stored", stored)  # `dataclasses.replace` forgets it, as it should
    return sized

  def stored_grid(self) -> tuple[int, int] | None:
    """The grid of patches of the position embeddings, as far as the card tells it."""
    size = self.card.image_size
    if not size or not self.module.tiles(size):
      return None
    return self.module.grid(*cfg.sides(size))

  def predict(self, images, *, top: int = 5, batch_size: int = 32) -> list[Prediction]:
    """The most probable classes of images, with their probabilities.

    That of an image that cannot be read, or whose logits are not finite, has no classes, and its
    `error` says why.

    Args:
      images: paths, the bytes of files, Pillow images, or arrays of uint8 pixels (H, W, 3) or
        (H, W), in any iterable; also one of them, or an array (N, H, W, 3). They are prepared as
        the weights expect.
      top: number of classes for each image.
      batch_size: images at a time.

    Raises:
      ValueError: the weights have no head of classes.
    """
    images = several(images)
    options = dict(top=top, batch_size=batch_size)
    with following("prediction", images) as done:
      return list(predictions.predict(self, images, done=done, **options))

  def features(
    self, images, *, layers: int = 0, patches: bool = False, batch_size: int = 32
  ) -> np.ndarray:
    """The features of images, float32.

    Args:
      images, batch_size: as for `predict`.
      layers: 0: (N, D), what the head sees, or the mean of the patches; `card.representation` tells
        which. L: (N, L, D), the class tokens of the last L blocks, the last block last, each after
        the final norm, if the model has one; the mean of the patches for a model without a class
        token, or whose final norm is for the mean.
      patches: the features of each patch in raster order instead: (N, patches, D) of the last
        block, or with `layers` (N, L, patches, D); after the final norm, if it is of tokens and not
        of the pooled vector.

    Raises:
      ValueError: images cannot be read (which are named), the model has not so many blocks, its
        patches are those of a neck, or features are not finite.
    """
    images = several(images)
    options = dict(layers=layers, patches=patches, batch_size=batch_size)
    with following("features", images) as done:
      return predictions.features(self, images, done=done, **options)

  def check_is(self, settings: cfg.Model):
    """Checks that the model is the one of config.model, apart from the head.

    Raises:
      ValueError: names every setting that differs.
    """
    as_many = dataclasses.replace(settings, num_classes=self.module.num_classes)
    differing = differences(self.module, models.configured(as_many))
    if differing:
      raise ValueError(
        f"these weights are not of a {settings.name} as config.model describes it: "
        f"{'; '.join(differing)}; set config.model.name to their model, and settings such as "
        "--config.model.depth=12 or --config.model.activation=gelu where they differ from it."
      )


def read_only(array):
  """A view of a NumPy array that cannot be written to; others, such as those of JAX, as given."""
  if not isinstance(array, np.ndarray):
    return array
  view = array.view()
  view.flags.writeable = False
  return view


@contextlib.contextmanager
def following(what: str, images: Iterable) -> Iterator[Callable[[int], None]]:
  """Shows on stderr how many of the images are done; call its result with more of them."""
  total = len(images) if isinstance(images, Sized) else 0
  with progress.of_process(jax.process_index() == 0, sys.stderr) as shown:
    yield shown.images(what, total, compiles=True).done


def several(images) -> Iterable:
  """The images of one image, of an array (N, H, W, 3) or of paths, or of several images."""
  if isinstance(images, (str, bytes, os.PathLike, Image.Image)):
    return [images]
  if isinstance(images, jax.Array):
    images = np.asarray(images)
  if isinstance(images, np.ndarray) and images.dtype.kind in "OU":  # of paths
    return images.ravel().tolist()
  if isinstance(images, np.ndarray) and images.ndim != 4:
    return [images]
  return images


def load(
  source: pathlib.Path | str, image_size: cfg.Size = 0, *, step: int = 0, average: bool = True
) -> LoadedModel:
  """Loads the model at `source`, for images of one size.

  Args:
    source: a workdir, a checkpoint, *.npz, *.msgpack, *.safetensors, or a Hugging Face folder.
    image_size: side of square images, or (height, width), pixels; 0: the size that the weights are
      for.
    step: the step of a workdir's checkpoint; 0: the newest.
    average: of a checkpoint with a moving average of the parameters, take the average; False: the
      parameters themselves.

  Raises:
    ConfigError, OSError, CheckpointError: as `weights.read`.
    ValueError: the weights are damaged or not of a model of this project, or as
      `LoadedModel.at_size`.
  """
  loaded = read_model(source, step=step, average=average)
  try:
    return loaded.at_size(image_size)
  except ValueError as error:
    raise ValueError(f"{source}: {error}") from error


def read_model(
  source: pathlib.Path | str,
  *,
  step: int = 0,
  average: bool = True,
  otherwise: cfg.Model = UNKNOWN,
) -> LoadedModel:
  """As `load`, but the parameters stay as they are stored, not fitted to an image size.

  Args:
    source, step, average: as in `load`.
    otherwise: as in `of_weights`.

  Raises:
    ConfigError, ValueError, OSError, CheckpointError: as `load`.
  """
  loaded = weights.read(path_of(source), step=step, average=average)
  try:
    return dataclasses.replace(of_weights(loaded, otherwise), source=str(source))
  except ValueError as error:
    raise ValueError(f"{source} is not a model of this project: {error}") from error


def of_weights(
  read: Weights, otherwise: cfg.Model = UNKNOWN, asked: cfg.Model = UNKNOWN
) -> LoadedModel:
  """The model that weights belong to.

  Args:
    read: the weights.
    otherwise: config.model, used if there is no card, for the settings that parameters do not show
      (`config.model.CONFIG_ONLY_FIELDS`).
    asked: the same without what rules gave; it wins over a card whose model is guessed.

  Raises:
    ValueError: the parameters are not of a model of this project.
  """
  described = dataclasses.replace(otherwise, family=cfg.AUTO)  # the parameters tell it
  if read.card:
    described = read.card.model
  if read.card and read.card.model_guessed:
    values = {key: getattr(asked, key) for key in CONFIG_ONLY_FIELDS}
    given = {key: value for key, value in values.items() if value != cfg.AUTO}
    described = dataclasses.replace(described, **given)
  module = models.module_of(read.params, described)
  if not read.card and getattr(module, "final_norm", "") == "none":
    raise ValueError(
      "Transformer/encoder_norm/scale is missing, and no model card says that the model has no "
      "norm behind its blocks."
    )
  if not read.card and getattr(module, "positions", "") == "none" != otherwise.positions:
    _log.warning(
      "The weights have no position embeddings, and nothing says whether their model adds fixed "
      "ones; taken as none. For fixed ones (the ViT-S/16 of big_vision) give finetune and evaluate "
      "--config.model.positions=sincos2d. For all commands: export the weights to OTHER.npz and "
      'change "positions" in OTHER.npz.json to "sincos2d".'
    )
  card = read.card or weights.inferred(read.params)
  model = models.settings_of(module)
  if card.model.name != cfg.AUTO:
    model = dataclasses.replace(model, name=card.model.name)
  card = dataclasses.replace(card, model=model)
  params = with_head(of_model(read.params), module.feature_width())
  return LoadedModel(read, module, params, card)


def with_head(params: dict, width: int) -> dict:
  """The parameters; if they have no head, a head of zeros for one class of `width` features."""
  if "head" in params:
    return params
  head = {"kernel": np.zeros((width, 1), np.float32), "bias": np.zeros(1, np.float32)}
  return params | {"head": head}
