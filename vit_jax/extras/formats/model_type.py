"""A model type of Transformers: what config.json and the names of arrays in its folders mean.

To add one, write a file in `model_types` that ends in a `ModelType`, and name it in
`vit_jax.registry.MODEL_TYPES`.
"""

import dataclasses
from collections.abc import Callable

from vit_jax.config import MAX_SIDE
from vit_jax.config.model import USUAL
from vit_jax.extras.formats import huggingface_images
from vit_jax.extras.formats.huggingface_images import Prepared
from vit_jax.models.family import Network
from vit_jax.models.positions import ADDED
from vit_jax.models.recognition import architecture
from vit_jax.weights.card import RULES, Card, Rule, Rules, one_of, or_none, whole
from vit_jax.weights.translation import DENSE, OURS, THEIRS, Table, layer

# For each of our activations, the library's names; exports use the first.
ACTIVATIONS = {
  "gelu_tanh": ["gelu_pytorch_tanh", "gelu_new", "gelu_fast", "gelu_accurate", "gelu_python_tanh"],
  "gelu": ["gelu", "gelu_python"],
  "quick_gelu": ["quick_gelu"],
  "silu": ["silu", "swish"],
}
PROBLEM_TYPES = {"softmax": "single_label_classification", "sigmoid": "multi_label_classification"}
PROBLEMS = one_of(*PROBLEM_TYPES.values(), None)
# Fields of a module that every model type leaves open.
OPEN = ("patch", "channels", "depth", "width", "mlp_dim", "heads", "activation", "norm_epsilon")
ANY = Rule(lambda value: True, "any value")
EPSILONS = Rule(lambda x: isinstance(x, float) and 0 < x <= 1e-2, "above 0, at most 0.01")
ACTS = one_of(*(name for names in ACTIVATIONS.values() for name in names))
# Keys of config.json that are this project's own.
OWN = {
  "representation": (RULES["representation"], Card.representation),
  "average": (RULES["average"], Card.average),
  "positions": (one_of("none", "relative", "relative_table", *ADDED), "none"),
  "resampling": (or_none(RULES["resampling"]), None),
  "position_resizing": (or_none(RULES["position_resizing"]), None),
}
HEAD = Table(*layer("head", "classifier", DENSE))


@dataclasses.dataclass(frozen=True)
class ModelType:
  """A model type: a line in the registry.

  Attributes:
    plain: the library's class of such a model without a head.
    headed: its class with a head; "": there is none, or it computes something else.
    names: our names, and those in a model without a head and without prefixes.
    heads: the same for the head.
    prefix: of the names in a model with a head, "vit.".
    plain_prefix: of the names in a model without a head, as it is written.
    part: the key of config.json that holds the settings of the image encoder; "": the top level.
    computed: for each key of config.json that has a meaning here, the values with which this
      project computes the same, and the library's default for a missing key.
    sizes: (module) -> keys of config.json that follow from it; ValueError: the library has no such
      model.
    fields: of a module, the values that the type has a place for; for all other fields but `OPEN`,
      the usual value alone.
    position_resizing: how the library resizes position embeddings.
    resizes: whether the library does so for images of any size, without being asked to.
    processor: the kind of processor if none is named beside the weights, as in
      `huggingface_images`.
    usual: (side) -> how images are prepared if there is no file about it; None: as that kind does
      by default.
    left_out: pattern of the names of arrays that features of images do not need.
    here: (arrays by our names, settings) -> these arrays as our model has them; ValueError: none
      here computes the same.
    there: (arrays by our names) -> these arrays as the library's model has them; ValueError: it has
      no place for them.
    known: (settings) -> fields of `config.Model` that the parameters do not show, besides
      activation and epsilon.
    written_with: (module) -> keys of config.json that are written besides.
    written: whether exports write the type.
    projection: whether the head is a projection, as `Card.projection` says.
  """

  plain: str
  names: Table
  computed: Rules
  sizes: Callable[[Network], dict]
  position_resizing: str
  processor: str
  usual: Callable[[int], Prepared] | None = None
  headed: str = ""
  heads: Table = HEAD
  prefix: str = ""
  plain_prefix: str = ""
  part: str = ""
  fields: dict[str, Rule] = dataclasses.field(default_factory=dict)
  resizes: bool = False
  left_out: str = "(?!)"
  here: Callable[[dict, dict], dict] = lambda flat, settings: flat
  there: Callable[[dict], dict] = lambda flat: flat
  known: Callable[[dict], dict] = lambda settings: {}
  written_with: Callable[[Network], dict] = lambda module: {}
  written: bool = True
  projection: bool = False

  def table(self) -> Table:
    """All rows."""
    if self.headed:
      return self.names + self.heads
    return self.names

  def class_of(self, flat: dict) -> str:
    """The library's class for parameters with these names."""
    if "head/kernel" in flat and self.headed:
      return self.headed
    return self.plain

  def prepared(self, side: int) -> Prepared:
    """How images of this size are prepared if there is no file about it."""
    if self.usual:
      return self.usual(side)
    return huggingface_images.usual(self.processor, side)

  def unlike(self, module: Network) -> list[str]:
    """The fields of a module that the type has no place for, with their values."""
    return [
      f"{key}={value!r}"
      for key, value in architecture(module).items()
      if key not in OPEN and not self.fields.get(key, one_of(USUAL.get(key))).test(value)
    ]

  def lacking(self, module: Network, flat: dict, *, projection: bool) -> list[str]:
    """What else the type has no place for, of a module that is alike.

    Args:
      module: the module.
      flat: its parameters by name.
      projection: whether its head is a projection.
    """
    other_head = []
    if "head/kernel" in flat and projection != self.projection:
      other_head = ["a projection" if projection else "a head of classes"]
    try:
      self.sizes(module)
      return self.table().lacking(self.there(flat), OURS) + other_head
    except ValueError as error:
      return [str(error), *other_head]

  def written_arrays(self, flat: dict) -> dict:
    """The library's arrays for our parameters by name, for which there are no obstacles."""
    prefix = self.plain_prefix
    if self.class_of(flat) != self.plain:
      prefix = self.prefix
    theirs = self.table().theirs(self.there(flat))
    of_head = {name for name in theirs if self.heads.rows_of(name, THEIRS)}
    return {name if name in of_head else prefix + name: x for name, x in theirs.items()}


def rules(*classes: str, kinds: tuple[str, ...], acts: Rule = ACTS, **others) -> Rules:
  """The rules of the keys that most types share, in the form of `ModelType.computed`.

  Args:
    classes: that are read.
    kinds: the model types.
    acts: the values of hidden_act.
    others: {key: default} of these keys, of sizes, which any value suits here, and
      {key: (rule, default)} of the type's own.
  """
  shared = {
    "architectures": (one_of(*([name] for name in classes)), None),
    "model_type": (one_of(*kinds), kinds[0]),
    "hidden_act": (acts, "gelu"),
    "layer_norm_eps": (EPSILONS, 1e-12),
    "num_attention_heads": (whole(1, 10**4), 12),
    "num_channels": (whole(1, 1024), 3),
    "problem_type": (PROBLEMS, None),
    "pruned_heads": (one_of({}, None), None),
    "quantization_config": (one_of(None), None),
    "image_size": (whole(0, MAX_SIDE), 224),
    "patch_size": (whole(1, 9999), 16),
  }
  own = {}
  for key, value in others.items():
    if not isinstance(value, tuple):
      rule, _ = shared.get(key, (ANY, None))
      value = rule, value
    own[key] = value
  return shared | own | OWN


def loss_of(problem_type: str | None) -> str:
  """Our loss for one of transformers' names in `PROBLEM_TYPES`; None: not known."""
  return "sigmoid" if problem_type == PROBLEM_TYPES["sigmoid"] else Card.loss


def activation_of(hidden_act: str) -> str:
  """Our activation with one of transformers' names in `ACTIVATIONS`."""
  return next(ours for ours, theirs in ACTIVATIONS.items() if hidden_act in theirs)
