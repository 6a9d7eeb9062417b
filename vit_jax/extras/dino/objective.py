"""DINO: a student says of every crop of an image what its moving average says of the large ones.

Source: Caron et al., "Emerging properties in self-supervised vision transformers", 2021 (arXiv
2104.14294), Section 3.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import ClassVar, NamedTuple

from etils import epy

from vit_jax.config import Config, ConfigError, ObjectiveSettings, Size, sides
from vit_jax.config.data import AREAS, View, check_range
from vit_jax.config.fields import MAX_SIDE, name_of_kind, setting
from vit_jax.learning.objective import OBJECTIVE_PARAMS, PREFIX, Objective, Sums, of_model

with epy.lazy_imports():  # reading settings needs no JAX
  import jax
  import jax.numpy as jnp

  from vit_jax.data import batches
  from vit_jax.extras.dino import distortion, head
  from vit_jax.models import Network, vit_costs
  from vit_jax.storage import tree

LARGE = ("global_1", "global_2")
SMALL = "local"
TABLE = "Transformer/posembed_input/pos_embedding"
SHARE = 3 / 7  # usual side of small crops, of that of large ones: 96 of 224 pixels
BLUR = 2 / 224  # the largest radius, of the side of a large crop
SAME = 0.02  # least standard deviation of features that differ
UNIFORM = 0.99  # most entropy of the teacher, as a fraction of that of equal probabilities
_OWN = 2**32 - 1  # folded into the key of the parameters
_SMALL = 2**32 - 1  # folded into the key of a part, for dropout in the small crops


@dataclasses.dataclass(frozen=True)
class Settings(ObjectiveSettings):
  """Self-distillation, without labels; the teacher is the run's moving average."""

  kind: str = name_of_kind(
    "dino", "without labels: of every crop, what the moving average says of other large crops"
  )
  local_crops: int = setting(8, "small crops of an image, beside two of image_size", low=0, high=64)
  local_side: int = setting(
    96,
    "side of the small crops, pixels",
    low=1,
    high=MAX_SIDE,
  )
  local_area: tuple = setting(
    (0.05, 0.4),
    "smallest and largest fraction of the image's area in a small crop",
  )
  head_hidden: int = setting(2048, "hidden size of the head's MLP", low=1, high=2**15)
  head_bottleneck: int = setting(256, "outputs of this MLP", low=1, high=2**13)
  head_outputs: int = setting(65_536, "prototypes: outputs of the head", low=2, high=2**20)
  student_temperature: float = setting(0.1, "of the student's softmax", low=1e-3, high=10.0)
  teacher_temperature: float = setting(
    0.07, "of the teacher's softmax, after its warm-up", low=1e-3, high=10.0
  )
  first_teacher_temperature: float = setting(
    0.04,
    "the same at the start of the run",
    low=1e-3,
    high=10.0,
  )
  temperature_warmup: float = setting(
    0.0375,
    "fraction of the run in which the teacher's temperature rises linearly (30 of 800 epochs)",
    low=0.0,
    high=1.0,
  )
  frozen_prototypes: float = setting(
    0.00125,
    "fraction of the run before the last layer is trained (1 of 800 epochs)",
    low=0.0,
    high=1.0,
  )
  centre_momentum: float = setting(
    0.9, "decay of the moving average of the teacher's outputs", low=0.0, high=0.999999
  )

  position_resizing: ClassVar[str] = "bicubic_offset"  # of the authors' code

  def views(self, data) -> Mapping[str, View]:
    """Two large crops with different distortions, and the small ones.

    The radius of the blur is the authors' for large crops of 224 pixels, and in proportion to them.
    """
    radius = BLUR * max(sides(data.image_size))

    def distorted(cropped, **probabilities):
      augment = *data.augment, distortion.Distortion(**probabilities, radius=radius)
      return dataclasses.replace(cropped, augment=augment)

    large = data.cropped(data.image_size, data.crop_area)
    first, second = LARGE
    views = {
      first: View(distorted(large, blur=1.0)),
      second: View(distorted(large, blur=0.1, solarize=0.2)),
    }
    if self.local_crops:
      small = data.cropped(self.local_side, self.local_area)
      views[SMALL] = View(distorted(small, blur=0.5), self.local_crops)
    return views

  def check(self, config: Config, model):
    """Checks that there is a teacher, and that the model takes small crops too."""
    asked = "config.objective.kind='dino'"
    if not config.optimizer.averages:
      raise ConfigError(
        f"{asked} takes the moving average of the parameters as its teacher, and there is none; "
        "give --config.optimizer.ema=0.996 --config.optimizer.ema_corrected=False."
      )
    for key in ("train_resize", "train_resize_ratio", "train_pad"):
      if value := getattr(config.data, key):
        raise ConfigError(
          f"config.data.{key}={value} has no effect: {asked} cuts crops by their area; give "
          f"--config.data.{key}=0."
        )
    if model.channels != 3:
      raise ConfigError(
        f"{asked} distorts colours, and config.model.channels={model.channels}; give "
        "--config.objective.kind=mae."
      )
    if not self.local_crops:
      return
    check_range("config.objective.local_area", self.local_area, *AREAS)
    most = min(sides(config.data.image_size))
    if self.local_side > most:
      stride = math.lcm(*sides(model.stride()))
      usual = max(round(SHARE * most / stride), 1) * stride
      raise ConfigError(
        f"config.objective.local_side={self.local_side} is larger than the large crops, whose "
        f"smaller side is {most} pixels; give --config.objective.local_side={usual}."
      )
    if not model.tiles(self.local_side):
      raise ConfigError(
        f"config.objective.local_side={self.local_side} is not divisible into the patches of "
        f"{config.model.name}; give a multiple of {model.stride()}."
      )
    shapes = (model.parameter_shapes(size) for size in (config.data.image_size, self.local_side))
    large, small = ({name: x.shape for name, x in tree.flatten(each).items()} for each in shapes)
    other = [name for name in large if large[name] != small.get(name) and name != TABLE]
    if other:
      raise ConfigError(
        f"{asked} needs crops of two sizes, and {other[0]} of {config.model.name} is for one; give "
        "--config.model.positions=1d, or --config.objective.local_crops=0."
      )

  def configured(self, config: Config, model) -> "DINO":
    """The objective of a run."""
    return DINO(model, self, config.data.image_size, config.position_resizing)


class Temperatures(NamedTuple):
  """Of the two softmaxes, in a step."""

  student: "float | jax.Array"
  teacher: "float | jax.Array"


@dataclasses.dataclass(frozen=True)
class DINO(Objective):
  """The cross-entropy between teacher and student; see `vit_jax.learning.objective`.

  The teacher gets the two large crops, the student all. For each large crop, every other crop of
  the image is to give the teacher's output: a softmax of its cosines, less their centre, at a low
  temperature. The loss is the mean over these pairs, and then over images. The centre is the moving
  average of the teacher's outputs, over all images that count.

  Attributes:
    model: the network; its head is neither used nor initialised.
    settings: config.objective.
    image_size: of the large crops, pixels.
    position_resizing: how positions are resized for small crops: config.position_resizing.
  """

  model: "Network"
  settings: Settings
  image_size: Size
  position_resizing: str

  def init(self, key: "jax.Array", image_size: Size) -> dict:
    """The model's parameters without head, and those of DINO's head."""
    images = jnp.zeros((1, *sides(image_size), 3))
    params = self.model.init(key, images, train=False, method="features")["params"]
    own = head.init(jax.random.fold_in(key, _OWN), **self._sizes())
    return params | {OBJECTIVE_PARAMS: own}

  def begin(self, params: dict) -> dict:
    """A centre of zeros."""
    return {"centre": jnp.zeros(self.settings.head_outputs)}

  def seen(self, extra: dict, average: dict, progress: "jax.Array") -> dict:
    """The teacher and the progress of the run, beside the centre."""
    return extra | {"teacher": average, "progress": progress}

  def prepare(self, batch: dict, key: "jax.Array") -> dict:
    """The batch: crops are drawn with the data."""
    return batch

  def loss(self, params: dict, extra: dict, batch: dict, key: "jax.Array") -> Sums:
    """The sums over a part of a batch.

    Metrics: teacher_entropy, the mean entropy of the teacher's softmax, nats; feature_std, the
    standard deviation of the teacher's features of the first crops, each divided by its norm: 0 if
    all are the same, 1 if their mean is 0; of a batch in parts the mean over those of two images
    or more.
    """
    settings = self.settings
    mask = batch["mask"]
    large = jnp.stack([batch[name] for name in LARGE], axis=1)
    features, taught = self._outputs(extra["teacher"], large)
    _, students = self._outputs(params, large, key=key)
    students = [students[:, i] for i in range(len(LARGE))]
    if settings.local_crops:
      _, small = self._outputs(params, batch[SMALL], key=jax.random.fold_in(key, _SMALL))
      students += [small[:, i] for i in range(settings.local_crops)]
    temperatures = self.temperatures(extra["progress"])
    targets = jax.nn.softmax((taught - extra["centre"]) / temperatures.teacher)
    losses = cross_entropy(targets, [x / temperatures.student for x in students])
    entropy = jax.scipy.special.entr(targets).sum(axis=-1).mean(axis=-1)
    count = mask.sum()
    spread = deviation(features[:, 0], mask) * count, count
    metrics = {
      "teacher_entropy": (jnp.sum(entropy * mask), count),
      "feature_std": tuple(jnp.where(count > 1, x, 0) for x in spread),
    }
    statistics = jnp.einsum("b,bk->k", mask, taught.mean(axis=1), precision="highest"), count
    return Sums(jnp.sum(losses * mask), count, metrics, statistics)

  def held(self, changes: dict, progress: "jax.Array") -> dict:
    """The changes; at the start of the run, those of the last layer are zero."""
    own = changes[OBJECTIVE_PARAMS]
    fixed = progress < self.settings.frozen_prototypes
    prototypes = jax.tree.map(lambda x: jnp.where(fixed, 0, x), own["prototypes"])
    return changes | {OBJECTIVE_PARAMS: own | {"prototypes": prototypes}}

  def after_update(self, params: dict, extra: dict, statistics) -> dict:
    """The centre, moved towards the mean of the teacher's outputs."""
    total, count = statistics
    centre = extra["centre"]
    mean = jnp.where(count > 0, total / jnp.maximum(count, 1), centre)
    return {"centre": centre + (1 - self.settings.centre_momentum) * (mean - centre)}

  def temperatures(self, progress: "jax.Array") -> Temperatures:
    """Of student and teacher, when this fraction of the run is done."""
    settings = self.settings
    teacher = settings.teacher_temperature
    if settings.temperature_warmup:
      first = settings.first_teacher_temperature
      risen = jnp.minimum(progress / settings.temperature_warmup, 1.0)
      teacher = first + (teacher - first) * risen
    return Temperatures(settings.student_temperature, teacher)

  def warning(self, metrics: Mapping[str, float]) -> str:
    """Names a collapse: features that are all the same, or a teacher that tells nothing apart."""
    spread = metrics[f"{PREFIX}feature_std"]
    entropy = metrics[f"{PREFIX}teacher_entropy"]
    most = math.log(self.settings.head_outputs)
    if spread < SAME:
      return (
        f"training/feature_std={spread:.2g}: the features of all images are nearly the same "
        "(collapse); lower config.schedule.learning_rate."
      )
    if entropy > UNIFORM * most:
      return (
        f"training/teacher_entropy={entropy:.3f} is nearly that of equal probabilities, {most:.3f} "
        "(collapse); lower config.objective.teacher_temperature."
      )
    return ""

  def training_flops(self, image_size: Size) -> int:
    """The FLOPs of the student's update, and of the teacher's forward pass."""
    settings = self.settings
    large = len(LARGE) * self._macs(image_size)
    small = 0
    if settings.local_crops:
      small = settings.local_crops * self._macs(settings.local_side)
    return vit_costs.training_flops(large + small) + 2 * large

  def _macs(self, size: Size) -> int:
    """Multiply-adds of a crop."""
    model = self.model
    features = model.macs(*sides(size)) - model.feature_width() * model.num_classes
    return features + head.macs(**self._sizes())

  def _sizes(self) -> dict[str, int]:
    settings = self.settings
    return dict(
      inputs=self.model.feature_width(),
      hidden=settings.head_hidden,
      bottleneck=settings.head_bottleneck,
      outputs=settings.head_outputs,
    )

  def _outputs(
    self, params: dict, crops: "jax.Array", *, key: "jax.Array | None" = None
  ) -> tuple["jax.Array", "jax.Array"]:
    """Features (B, n, D) and the head's outputs (B, n, K) of crops (B, n, S, S, 3) uint8.

    With a `key`, as in training: dropout and stochastic depth are used.
    """
    model = self.model
    size = crops.shape[-3:-1]
    pixels = batches.normalize(crops.reshape(-1, *crops.shape[2:]), model.dtype)
    grids = [model.grid(*each) for each in (sides(self.image_size), size)]
    train = key is not None
    found = model.apply(
      {"params": at_grid(of_model(params), *grids, self.position_resizing)},
      pixels,
      train=train,
      method="features",
      rngs={"dropout": key} if train else None,
    )
    features = found["pre_logits"]
    outputs = head.outputs(params[OBJECTIVE_PARAMS], features, model.dtype)
    return tuple(x.reshape(*crops.shape[:2], -1) for x in (features, outputs))


def cross_entropy(targets: "jax.Array", logits: list["jax.Array"]) -> "jax.Array":
  """The mean cross-entropy over pairs of different crops, (B,).

  Args:
    targets: (B, T, K), probabilities of the first T crops.
    logits: (B, K) of each crop, the first T among them.
  """
  total = 0.0
  pairs = 0
  for place, each in enumerate(logits):
    others = [i for i in range(targets.shape[1]) if i != place]
    wanted = sum(targets[:, i] for i in others)
    total = total - jnp.sum(wanted * jax.nn.log_softmax(each), axis=-1)
    pairs += len(others)
  return total / pairs


def deviation(features: "jax.Array", mask: "jax.Array") -> "jax.Array":
  """The standard deviation of vectors (B, D), each over its norm, with weights `mask` (B,)."""
  directions = head.unit(features)
  mean = jnp.einsum("b,bd->d", mask, directions, precision="highest") / mask.sum()
  return jnp.sqrt(jnp.sum(mask * jnp.sum((directions - mean) ** 2, axis=-1)) / mask.sum())


def at_grid(params: dict, old: tuple[int, int], new: tuple[int, int], rule: str) -> dict:
  """The model's parameters for another grid of patches; those it has for no grid stay.

  `rule` is one of config.position_resizing.
  """
  from vit_jax.weights.resizing import resizing_matrix  # its package imports JAX

  encoder = params.get("Transformer", {})
  if old == new or "posembed_input" not in encoder:
    return params
  table = encoder["posembed_input"]["pos_embedding"]
  before = table.shape[1] - math.prod(old)
  rows, columns = (jnp.float32(resizing_matrix(o, n, rule)) for o, n in zip(old, new, strict=True))
  grid = table[0, before:].reshape(*old, -1)
  grid = jnp.einsum("ro,cp,opd->rcd", rows, columns, grid, precision="highest")
  table = jnp.concatenate([table[:, :before], grid.reshape(1, math.prod(new), -1)], axis=1)
  return params | {"Transformer": encoder | {"posembed_input": {"pos_embedding": table}}}
