"""Masked patch prediction: the paper's self-supervision (Section 4.6, Appendix B.1.2)."""

import dataclasses
from typing import ClassVar

from etils import epy

from vit_jax.config import Config, ConfigError, ObjectiveSettings, Size, as_size, sides
from vit_jax.config.fields import name_of_kind, setting
from vit_jax.learning.objective import OBJECTIVE_PARAMS, Objective, Sums, of_model

with epy.lazy_imports():  # reading settings needs no JAX
  import jax
  import jax.numpy as jnp

  from vit_jax.data import batches
  from vit_jax.extras.masked_patches import corruption, targets
  from vit_jax.models import Network, layers, vit_costs

_OWN_STREAM = 2**32 - 1  # folded into the key of the parameters


@dataclasses.dataclass(frozen=True)
class Masked(ObjectiveSettings):
  """Masked patch prediction, without labels."""

  kind: str = name_of_kind(
    "masked_patches", "without labels: what corrupted patches look like (Section 4.6)"
  )
  rate: float = setting(
    0.5, "fraction of each image's patches that is corrupted", low=0.0, high=1.0
  )
  target: str = setting(
    "mean_color",
    "what is predicted of a corrupted patch: the class of its mean colour, the classes of a patch "
    "reduced to 4 x 4 pixels, or all its pixels",
    choices=("mean_color", "down4", "pixels"),
  )

  representation: ClassVar[str] = "patches"

  def check(self, config: Config, model):
    """Checks that the model has patches to predict, and that the settings suit them."""
    check_model(model, config.model.name)
    check_patches(model, self, config.model.name, config.data.image_size)

  def configured(self, config: Config, model) -> "MaskedPatches":
    """The objective of a run."""
    return MaskedPatches(model, self.rate, targets.TARGETS[self.target])


@dataclasses.dataclass(frozen=True)
class MaskedPatches(Objective):
  """Predicts what corrupted patches look like; see `vit_jax.learning.objective`.

  Some patch embeddings of every image are corrupted before positions are added. One linear layer
  predicts a target of each corrupted patch from the encoder's output there. The loss is the mean
  over the corrupted patches of an image, whatever their corruption, and then over images.

  Attributes:
    model: a `Maskable` model (vit_jax/models/family.py); its head, pooling and representation layer
      are neither used nor initialised.
    rate: fraction of the patches that is corrupted.
    target: what is predicted.
  """

  model: "Network"
  rate: float
  target: "targets.Target"

  def init(self, key: "jax.Array", image_size: Size) -> dict:
    """The model's parameters without head, the mask embedding and the prediction layer."""
    images = jnp.zeros((1, *sides(image_size), 3))
    params = self.model.init(key, images, method=encoded)["params"]
    own_key = jax.random.fold_in(key, _OWN_STREAM)
    width = self.model.width
    mask = 0.02 * jax.random.normal(own_key, (width,))
    layer = self._layer().init(own_key, jnp.zeros((1, width)))["params"]
    return params | {OBJECTIVE_PARAMS: {"mask_embedding": mask, "prediction": layer}}

  def prepare(self, batch: dict, key: "jax.Array") -> dict:
    """Adds the corruption of every image, the targets, and the loss of the best constant."""
    images = batch["image"]
    mask = batch["mask"]
    drawn = self.corruption(key, images)
    targets = self.targets(images, drawn)
    constant = self.target.constant_loss(self.target.statistics(targets, mask))
    added = dict(targets=targets, constant=jnp.broadcast_to(constant, mask.shape))
    return batch | drawn._asdict() | added

  def loss(self, params: dict, extra: dict, batch: dict, key: "jax.Array") -> Sums:
    """The sums over a part of a batch.

    Metrics: accuracy (for pixels, squared_error) over all corrupted patches and over each kind of
    corruption, and constant_loss, the loss of the best prediction that is the same for all patches
    of the batch; a model that has learned something has a smaller loss.
    """
    drawn = corruption.Corruption(*(batch[name] for name in corruption.Corruption._fields))
    predictions = self.predict(params, batch["image"], drawn, train=True, key=key)
    sums = self.sums(predictions, batch["targets"], drawn.kinds, batch["mask"])
    constant = jnp.sum(jnp.where(batch["mask"] > 0, batch["constant"], 0))
    return sums._replace(metrics=sums.metrics | {"constant_loss": (constant, sums.count)})

  def sums(self, predictions, targets, kinds: "jax.Array", mask: "jax.Array") -> Sums:
    """The loss, and the measure over all corrupted patches and over each kind of corruption.

    Args:
      predictions, targets: (B, M, outputs) float32 and (B, M, T), as for `Target`.
      kinds: (B, M), the kinds of corruption.
      mask: (B,), 1 for images that count.
    """
    errors = self.target.errors(predictions, targets).mean(axis=1)
    scores = self.target.scores(predictions, targets)
    counted = {"": mask[:, None] * jnp.ones_like(scores)}
    for kind, name in enumerate(corruption.KINDS):
      counted[f"_{name}"] = mask[:, None] * (kinds == kind)
    metrics = {
      self.target.measure + name: (jnp.sum(scores * counts), jnp.sum(counts))
      for name, counts in counted.items()
    }
    return Sums(jnp.sum(errors * mask), mask.sum(), metrics)

  def corruption(
    self, key: "jax.Array", images: "jax.Array", first: "int | jax.Array" = 0
  ) -> "corruption.Corruption":
    """Draws the corruption of images (B, S, S, 3), at the places `first`, first + 1, ..."""
    rows, columns = self.model.grid(*images.shape[1:3])
    patches = rows * columns
    number = corruption.count(self.rate, patches)
    places = first + jnp.arange(len(images))
    drawn = corruption.draw(key, places=places, patches=patches, corrupted=number)
    return corruption.Corruption(*map(layers.split_by_example, drawn))

  def targets(self, images: "jax.Array", drawn: "corruption.Corruption") -> "jax.Array":
    """The targets of the corrupted patches, (B, M, T)."""
    return corruption.rows(self.target.of(images, self.model.stride()), drawn.patches)

  def predict(
    self,
    params: dict,
    images: "jax.Array",
    drawn: "corruption.Corruption",
    *,
    train: bool,
    key=None,
  ) -> "jax.Array":
    """The predictions for the corrupted patches, (B, M, outputs) float32.

    Args:
      params: as from `init`.
      images: (B, S, S, 3) uint8.
      drawn: which patches are corrupted, and how.
      train: whether to use dropout, with `key`.
    """
    own = params[OBJECTIVE_PARAMS]
    rngs = None
    if train:
      rngs = {"dropout": key}
    outputs = self.model.apply(
      {"params": of_model(params)},
      batches.normalize(images, self.model.dtype),
      drawn,
      own["mask_embedding"],
      train=train,
      rngs=rngs,
      method=encoded,
    )
    seen = corruption.rows(outputs, drawn.patches)
    flat = seen.reshape(-1, seen.shape[-1])
    predictions = self._layer().apply({"params": own["prediction"]}, flat)
    return predictions.reshape(*seen.shape[:2], -1)

  def training_flops(self, image_size: Size) -> int:
    """The training FLOPs of embedding, encoder and predictions."""
    model = self.model
    rows, columns = model.grid(*sides(image_size))
    predictions = corruption.count(self.rate, rows * columns) * model.width * self._outputs()
    return vit_costs.training_flops(model.encoder_macs(*sides(image_size)) + predictions)

  def _layer(self) -> "layers.Head":
    return layers.Head(self._outputs(), 0.0, self.model.dtype)

  def _outputs(self) -> int:
    return self.target.outputs(self.model.stride())


def encoded(
  model: "Network",
  images: "jax.Array",
  drawn: "corruption.Corruption | None" = None,
  mask_embedding: "jax.Array | None" = None,
  *,
  train: bool = False,
) -> "jax.Array":
  """The encoder's output at the patches, (B, N, D), with some patch embeddings corrupted."""
  grid = model.grid(*images.shape[1:3])
  x = model.embed(images)
  if drawn is not None:
    x = corruption.corrupt(x, drawn, mask_embedding)
  x = model.encode(model.add_positions(x, grid, train=train), grid, train=train)
  return model.patches(x)


def check_model(model: "Network", name: str):
  """Checks that the model called `name` has patches, and nothing that would stay untrained."""
  reason = model.why_not_masked()
  if model.channels != 3:
    reason = "its targets are colours; use --config.model.channels=3."
  if reason:
    raise ConfigError(f"config.objective.kind='masked_patches' does not suit {name}: {reason}")


def check_patches(model: "Network", settings: Masked, name: str, size: Size):
  """Checks that there are patches to corrupt, and that they are large enough for the target.

  Args:
    model: of the run.
    settings: config.objective.
    name: of the model.
    size: of the images, pixels.
  """
  least_side = targets.TARGETS[settings.target].least_side
  try:
    rows, columns = model.grid(*sides(size))
  except ValueError as error:
    raise ConfigError(f"config.data.image_size={size}: {error}") from error
  stride = model.stride()
  patches = rows * columns
  rate = settings.rate
  if patches < 2 or not corruption.count(rate, patches):
    raise ConfigError(
      f"config.objective.rate={rate:g} of {patches} patches of an image leaves none to corrupt; "
      "raise the rate, such as --config.objective.rate=0.5, or take more patches."
    )
  whole = as_size([rows * stride, columns * stride])
  if whole != size:
    raise ConfigError(
      f"config.data.image_size={size} is not {rows} patches of {stride} pixels, so the pixels "
      f"under the patches of {name} are not known; nearest: {whole}."
    )
  if stride < least_side:
    raise ConfigError(
      f"config.objective.target={settings.target!r} needs patches of at least {least_side} "
      f"pixels, and those of {name} have {stride}; use mean_color or pixels."
    )
