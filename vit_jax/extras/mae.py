"""Masked autoencoders: an encoder of few patches, and a light decoder of all.

Source: He et al., "Masked autoencoders are scalable vision learners", 2022 (arXiv 2111.06377).
"""

import dataclasses
import math

from etils import epy

from vit_jax.config import Config, ConfigError, ObjectiveSettings, Size, sides
from vit_jax.config.fields import name_of_kind, setting
from vit_jax.learning.objective import OBJECTIVE_PARAMS, Objective, Sums, of_model

with epy.lazy_imports():  # reading settings needs no JAX
  import jax
  import jax.numpy as jnp

  from vit_jax import models
  from vit_jax.data import batches
  from vit_jax.extras.masked_patches import corruption, targets
  from vit_jax.models import Network, family, layers, vit_costs
  from vit_jax.models import positions as position_embeddings

POSITIONS = "sincos2d_mae"  # of the decoder
EPSILON = 1e-6  # added to the variance of a patch
_DRAWS = 2**32 - 1  # folded into the key of a step, beside the stream of dropout
_OWN = 2**32 - 1  # folded into the key of the parameters


@dataclasses.dataclass(frozen=True)
class Settings(ObjectiveSettings):
  """The masked autoencoder, without labels."""

  kind: str = name_of_kind(
    "mae", "without labels: the pixels of removed patches, by a masked autoencoder"
  )
  mask_ratio: float = setting(
    0.75, "fraction of each image's patches that the encoder does not get", low=0.0, high=1.0
  )
  decoder_depth: int = setting(8, "blocks of the decoder", low=1, high=256)
  decoder_width: int = setting(
    512, "hidden size of the decoder; that of its MLPs is four times as large", low=8, high=2**13
  )
  decoder_heads: int = setting(16, "attention heads of the decoder", low=1, high=2**10)

  def check(self, config: Config, model):
    """Checks that the model can encode a part of the patches, and that the decoder can be built."""
    name = config.model.name
    if reason := model.why_not_in_part():
      raise ConfigError(f"config.objective.kind='mae' does not suit {name}: {reason}")
    rows, columns = model.grid(*sides(config.data.image_size))
    kept = kept_of(rows * columns, self.mask_ratio)
    if not 0 < kept < rows * columns:
      raise ConfigError(
        f"config.objective.mask_ratio={self.mask_ratio:g} keeps {kept} of the {rows * columns} "
        f"patches of an image; some must be kept and some removed, as with 0.75 of 16 patches."
      )
    try:
      self.decoder(model).check("the decoder")
    except ValueError as error:
      raise ConfigError(f"config.objective: the decoder of kind='mae': {error}") from error

  def configured(self, config: Config, model) -> "MaskedAutoencoder":
    """The objective of a run."""
    return MaskedAutoencoder(model, self.mask_ratio, self.decoder(model))

  def decoder(self, model: "Network") -> "Network":
    """The decoder: a ViT on the encoder's tokens, whose head gives the pixels of a patch."""
    outputs = model.channels * model.stride() ** 2
    attention = model.attention
    channels = self.decoder_width // self.decoder_heads
    if attention == "cudnn" and not family.fits_cudnn(channels):
      attention = "xla"
    made = models.create(
      "ViT-B/1",
      depth=self.decoder_depth,
      width=self.decoder_width,
      mlp_dim=4 * self.decoder_width,
      heads=self.decoder_heads,
      num_classes=outputs,
      pool="gap",
      positions=POSITIONS,
      head_std=math.sqrt(2 / (self.decoder_width + outputs)),
      dtype=model.dtype,
      attention=attention,
      scan=model.scan,
      remat=model.remat,
      activation=model.activation,
      norm_epsilon=model.norm_epsilon,
    )
    return made.clone(channels=model.width)  # of a token


@dataclasses.dataclass(frozen=True)
class MaskedAutoencoder(Objective):
  """Predicts the pixels of patches that the encoder did not get; see `vit_jax.learning.objective`.

  The encoder gets the patches that are kept, with their positions, and the tokens before them. The
  decoder gets its output, with a learned mask embedding at the places of the others. The targets
  are the pixels of each patch less their mean, over their standard deviation. The loss is the mean
  squared error over the removed patches of an image, and then over images.

  Attributes:
    model: a `Maskable` model (vit_jax/models/family.py) that can encode patches in part; its head
      and pooling are neither used nor initialised.
    mask_ratio: fraction of the patches that is removed.
    decoder: as by `Settings.decoder`.
  """

  model: "Network"
  mask_ratio: float
  decoder: "Network"

  def init(self, key: "jax.Array", image_size: Size) -> dict:
    """The model's parameters without head, the decoder's and the mask embedding."""
    own_key = jax.random.fold_in(key, _OWN)
    images = jnp.zeros((1, *sides(image_size), self.model.channels))
    params = self.model.init(key, images, method=encoded)["params"]
    grid = self.model.grid(*sides(image_size))
    tokens = jnp.zeros((1, self.model.tokens_before() + math.prod(grid), self.model.width))
    mask = 0.02 * jax.random.normal(own_key, (self.decoder.width,))
    kept = jnp.arange(math.prod(grid))[None]
    given = (tokens, kept, mask, self._positions(grid), grid)
    decoder = self.decoder.init(own_key, *given, method=decoded)["params"]
    return params | {OBJECTIVE_PARAMS: {"mask_embedding": mask, "decoder": decoder}}

  def prepare(self, batch: dict, key: "jax.Array") -> dict:
    """Adds the patches that are kept of every image, and the loss of the best constant."""
    images = batch["image"]
    mask = batch["mask"]
    rows, columns = self.model.grid(*images.shape[1:3])
    kept = draw(
      key,
      places=jnp.arange(len(images)),
      patches=rows * columns,
      kept=kept_of(rows * columns, self.mask_ratio),
    )
    pixels = targets.Pixels()
    constant = pixels.constant_loss(pixels.statistics(self.targets(images), mask))
    kept = layers.split_by_example(kept)
    return batch | dict(kept=kept, constant=jnp.broadcast_to(constant, mask.shape))

  def loss(self, params: dict, extra: dict, batch: dict, key: "jax.Array") -> Sums:
    """The sums over a part of a batch.

    Metric: constant_loss, the loss of the best prediction that is the same for all patches of the
    batch; a model that has learned something has a smaller loss.
    """
    mask = batch["mask"]
    predictions = self.predict(params, batch["image"], batch["kept"], key)
    of_image = error(predictions, self.targets(batch["image"]), batch["kept"])
    constant = jnp.sum(jnp.where(mask > 0, batch["constant"], 0))
    return Sums(jnp.sum(of_image * mask), mask.sum(), {"constant_loss": (constant, mask.sum())})

  def targets(self, images: "jax.Array") -> "jax.Array":
    """The normalised pixels of all patches: (B, S, S, C) uint8 -> (B, N, P^2 C) float32."""
    return normalized(targets.Pixels().of(images, self.model.stride()))

  def predict(
    self, params: dict, images: "jax.Array", kept: "jax.Array", key: "jax.Array"
  ) -> "jax.Array":
    """The predictions for all patches in training, (B, N, P^2 C) float32.

    Args:
      params: as from `init`.
      images: (B, S, S, C) uint8.
      kept: (B, K), the patches that the encoder gets.
      key: of dropout.
    """
    own = params[OBJECTIVE_PARAMS]
    pixels = batches.normalize(images, self.model.dtype)
    rngs = {"dropout": key}
    tokens = self.model.apply(
      {"params": of_model(params)}, pixels, kept, train=True, rngs=rngs, method=encoded
    )
    grid = self.model.grid(*images.shape[1:3])
    given = (tokens, kept, own["mask_embedding"], self._positions(grid), grid)
    return self.decoder.apply({"params": own["decoder"]}, *given, method=decoded)

  def training_flops(self, image_size: Size) -> int:
    """The training FLOPs of embedding, encoder and decoder."""
    rows, columns = self.model.grid(*sides(image_size))
    patches = rows * columns
    before = self.model.tokens_before()
    kept = kept_of(patches, self.mask_ratio)
    width = self.decoder.width
    macs = self.model.encoder_macs(*sides(image_size), kept)
    macs += (before + kept) * self.model.width * width
    macs += sum(self.decoder.block_macs(i, before + patches) for i in range(self.decoder.depth))
    macs += patches * width * self.decoder.num_classes
    return vit_costs.training_flops(macs)

  def _positions(self, grid: tuple[int, int]) -> "jax.Array":
    """The decoder's position embeddings, (1, T + N, width), with zeros for the tokens before."""
    before = self.model.tokens_before()
    given = POSITIONS, grid, before, self.decoder.width
    return position_embeddings.PositionEmbedding(*given).apply({})


def kept_of(patches: int, mask_ratio: float) -> int:
  """How many patches are kept; rounded down, as by the authors' code."""
  return int(patches * (1 - mask_ratio))


def draw(key: "jax.Array", *, places: "jax.Array", patches: int, kept: int) -> "jax.Array":
  """Draws the patches that are kept, (B, K) int32, in raster order.

  The draws for an image depend only on the key and on the image's place.

  Args:
    key: of the step.
    places: (B,) whole numbers, the places of the images in the batch over all devices.
    patches: N.
    kept: K.
  """

  def of_image(key):
    return jnp.sort(jax.random.permutation(key, patches)[:kept])

  stream = jax.random.fold_in(key, _DRAWS)
  return jax.vmap(of_image)(jax.vmap(jax.random.fold_in, (None, 0))(stream, places))


def error(predictions: "jax.Array", targets: "jax.Array", kept: "jax.Array") -> "jax.Array":
  """The mean squared error over the patches of an image that are removed: (B,) float32.

  Args:
    predictions, targets: (B, N, P^2 C).
    kept: (B, K), the other patches.
  """
  errors = jnp.mean((predictions - targets) ** 2, axis=-1)
  removed = 1.0 - jnp.any(kept[:, :, None] == jnp.arange(errors.shape[1]), axis=1)
  return jnp.sum(errors * removed, axis=1) / removed.sum(axis=1)


def normalized(pixels: "jax.Array") -> "jax.Array":
  """Each patch (..., P^2 C) less its mean, over its deviation (P^2 C - 1 degrees of freedom)."""
  variance = pixels.var(axis=-1, keepdims=True, ddof=1)
  return (pixels - pixels.mean(axis=-1, keepdims=True)) / jnp.sqrt(variance + EPSILON)


def encoded(
  model: "Network", images: "jax.Array", kept: "jax.Array | None" = None, *, train: bool = False
) -> "jax.Array":
  """The encoder's output for the patches at `kept` (B, K), or all: (B, T + K, D).

  T is the number of tokens before the patches.
  """
  grid = model.grid(*images.shape[1:3])
  x = model.add_positions(model.embed(images), grid, train=train)
  if kept is not None:
    before = x[:, : model.tokens_before()]
    x = jnp.concatenate([before, corruption.rows(model.patches(x), kept)], axis=1)
  return model.encode(x, grid, train=train)


def decoded(
  decoder: "Network",
  tokens: "jax.Array",
  kept: "jax.Array",
  mask_embedding: "jax.Array",
  positions: "jax.Array",
  grid: tuple[int, int],
) -> "jax.Array":
  """The predictions for all patches, (B, N, outputs) float32.

  Args:
    decoder: a ViT with patches of one token.
    tokens: the encoder's output, (B, T + K, D).
    kept: (B, K), the places of its last K tokens among the patches.
    mask_embedding: (width,), of the other patches.
    positions: (1, T + N, width).
    grid: rows and columns of patches.
  """
  before = tokens.shape[1] - kept.shape[1]
  x = decoder.embed(tokens[:, :, None])
  masked = jnp.broadcast_to(
    mask_embedding.astype(x.dtype), (len(x), math.prod(grid), decoder.width)
  )
  x = jnp.concatenate([x[:, :before], corruption.filled(masked, kept, x[:, before:])], axis=1)
  x = decoder.encode(x + positions.astype(x.dtype), grid, train=False)[:, before:]
  flat = decoder.classify(x.reshape(-1, x.shape[-1]))
  return flat.reshape(*x.shape[:2], -1)
