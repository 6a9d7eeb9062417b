"""Settings of the architecture, and names that other libraries have for it."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from vit_jax import registry
from vit_jax.config.fields import AUTO, Rule, Size, setting, sides
from vit_jax.config.scales import in_words, patch_for, patch_of, scale_of
from vit_jax.process.text import listed

LATER_POOLS = ("gap_beside_token", "map_of_all", "map_with_token", "distilled")


def of_name(field: str, usual) -> Rule:
  """The rule of a setting of the architecture: as the name says, or as the weights have it.

  Args:
    field: of `Model`.
    usual: its value where the model has no such part.
  """

  def derive(name, asked, fields, architecture, images):
    if asked == AUTO:
      if known := architecture():
        return getattr(known, field), ""
      shape = scale_of(images()).shape
      if field in shape:
        return shape[field], in_words(images())
    return fields().get(field, usual), ""

  facts = "facts.fields", "facts.architecture", "facts.images"
  return Rule(("model.name", "asked.model.name", *facts), "model.name", derive)


def part(field: str, usual, meaning: str, **bounds):
  """A setting of the architecture; arguments as of `of_name` and `setting`."""
  return setting(AUTO, meaning, auto=of_name(field, usual), usual=usual, **bounds)


def name_of(init_from, side_asked, architecture, images, side) -> tuple[str, str]:
  """The name of the weights' model; from scratch, of one that suits the images."""
  if known := architecture():
    return known.name, init_from or "the weights"
  patch = patch_of(side()) if side_asked == AUTO else patch_for(sides(side_asked))
  origin = f"{in_words(images())}, images of about {side()} pixels"
  return f"{scale_of(images()).model}/{patch}", origin


def number_of_classes(labels) -> tuple[int, str]:
  """The number of the data's classes; 1 without labels."""
  names = labels().class_names
  if not names:
    return 1, ""
  return len(names), f"the data: {listed(names)}"


def type_of(device) -> tuple[str, str]:
  """bfloat16, except on CPUs, where it is slower."""
  dtype = "float32" if device().platform == "cpu" else "bfloat16"
  return dtype, "the devices"


FIXED_POSITIONS = ("sincos2d", "sincos2d_mae")  # without parameters
# Settings that decide the channels of an attention head, and whether the patches tile the images.
OF_HEADS = (
  *("data.image_size", "model.compute_dtype", "model.family", "model.patch", "model.depth"),
  *("model.width", "model.mlp_dim", "model.heads", "model.axial", "model.stem_width"),
  *("model.stages", "model.pool", "model.differential", "model.pool_heads"),
  "model.window",
)


def computed_by(*values) -> tuple[str, str]:
  """The implementation that suits the devices; the last of the values is the fact."""
  return values[-1](), "the devices"


@dataclasses.dataclass(frozen=True)
class Model:
  """The architecture."""

  name: str = setting(
    AUTO,
    "a name from vit_jax.models.names(), or a variant such as ViT-B/20 or R50x1+ViT-B/16p2 "
    "(patches of 2 x 2 positions on a hybrid's map); on the command line also a name of timm or "
    "Transformers (docs/from-timm.md)",
    auto=Rule(
      ("init_from", "asked.data.image_size", "facts.architecture", "facts.images", "facts.side"),
      "the weights; from scratch, the number and the size of the training images",
      name_of,
    ),
  )
  num_classes: int = setting(
    AUTO,
    "outputs of the head",
    auto=Rule(
      ("facts.labels",), "the classes of the training data", number_of_classes, stays="never"
    ),
    low=1,
    high=10**7,
  )
  family: str = part("family", None, "kind of model", choices=registry.FAMILIES)
  patch: Size = part(
    "patch",
    0,
    "side of a patch, or (height, width): pixels, or positions of a hybrid's map (1 in the names)",
    low=0,
    high=9999,
  )
  depth: int = part("depth", 0, "number of blocks", low=0, high=256)
  width: int = part(
    "width",
    0,
    "hidden size D; for a ResNet, channels of its root",
    low=0,
    high=2**15,
  )
  mlp_dim: int = part("mlp_dim", 0, "hidden size of the MLP", low=0, high=2**17)
  heads: int = part(
    "heads",
    0,
    "attention heads; a ResNet has them only if it is axial",
    low=0,
    high=2**10,
  )
  axial: bool = part(
    "axial",
    False,
    "attention of a ViT along rows, then along columns (Appendix D.6)",
  )
  stem_width: int = part(
    "stem_width",
    0,
    "channels of the root of a hybrid's ResNet; 0: a ViT without one",
    low=0,
    high=2**12,
  )
  unit_kind: str = part(
    "unit_kind",
    "bit",
    "kind of a ResNet: BiT's, or with a deep root and kernels as they are (ResNet-D)",
    choices=("bit", "d"),
  )
  stages: tuple = part(
    "stages",
    (),
    "residual units in each stage of a ResNet or of a hybrid's ResNet",
  )
  pool: str = part(
    "pool",
    "class_token",
    "input of the head: the class token, the mean of the patches, or attention pooling of them; "
    "with a class token in the model too, gap_beside_token; of all tokens, map_of_all or, with a "
    "class token, map_with_token; class token and distillation token, distilled",
    choices=("class_token", "gap", "map", *LATER_POOLS),
  )
  representation_layer: bool = setting(False, "dense layer of size D and tanh before the head")
  positions: str = part(
    "positions",
    "1d",
    "kind of position embedding; sincos2d and sincos2d_mae are fixed, as in Beyer et al. (2022) "
    "and in MAE; relative_table and relative_mlp are biases of attention, as in BEiT and Swin V2",
    choices=(
      *("1d", "2d", "relative", "none", *FIXED_POSITIONS),
      *("relative_table", "relative_mlp"),
    ),
  )
  position_place: str = part(
    "position_place",
    "stem",
    "where 1d and 2d position embeddings are added; whether relative_table and relative_mlp are "
    "shared by all blocks",
    choices=("stem", "every_layer", "every_layer_shared"),
  )
  dropout: float = setting(0.0, "dropout rate", low=0.0, high=0.99)
  head_bias: float = setting(
    0.0,
    "initial value of the head's bias",
    low=-100.0,
    high=100.0,
    used_if=(("objective.trains_head",),),
  )
  head_std: float = setting(
    0.0,
    "standard deviation of the head's initial kernel; 0: zeros, as in the paper",
    low=1e-6,
    high=1.0,
    off=0.0,
    used_if=(("objective.trains_head",),),
  )
  compute_dtype: str = setting(
    AUTO,
    "type of activations; parameters stay float32",
    auto=Rule(("facts.device",), "the devices: float32 on CPUs, else bfloat16", type_of),
    choices=("float32", "bfloat16"),
  )
  scan: bool = setting(False, "blocks stacked under one scan: compiles in seconds, but runs slower")
  remat: str = setting(
    "none",
    "what the backward pass recomputes to save memory: `none`, all but the outputs of dense layers "
    "(`dots`), or `everything`",
    choices=("none", "dots", "everything"),
  )
  attention: str = setting(
    AUTO,
    "how attention is computed: by cuDNN (`cudnn`), on NVIDIA GPUs in bfloat16, or by XLA; with "
    "`heads_first` XLA stores the heads before the tokens, which is faster on CPUs",
    auto=Rule(
      (*OF_HEADS, "facts.attention"),
      "the devices: cuDNN where it can compute the model, `heads_first` on CPUs in float32, else "
      "`xla`",
      computed_by,
      stays="never",
    ),
    choices=("xla", "heads_first", "cudnn"),
  )
  activation: str = part(
    "activation",
    "gelu_tanh",
    "activation of the MLPs: GELU in the tanh form of the published weights, exactly, or as x "
    "sigmoid(1.702 x); or SiLU",
    choices=("gelu_tanh", "gelu", "quick_gelu", "silu"),
  )
  norm_epsilon: float = part(
    "norm_epsilon",
    1e-6,
    "added to the variance, or mean of squares, in every norm",
    low=1e-15,
    high=1e-2,
  )
  stem_norms: str = part(
    "stem_norms",
    "published",
    "normalisation of a hybrid's ResNet: as in the `published` weights, or as in `timm`",
    choices=("published", "timm"),
  )

  # Settings of models that are not in the paper.
  registers: int = part(
    "registers",
    0,
    "learned tokens behind the class token",
    low=0,
    high=1000,
  )
  qk_norm: bool = part("qk_norm", False, "norm of the queries and keys of each head")
  norm: str = part(
    "norm", "layer", "kind of all norms: LayerNorm or RMSNorm", choices=("layer", "rms")
  )
  norm_place: str = part(
    "norm_place",
    "before",
    "norms before attention and MLP, or after them (res-post-norm)",
    choices=("before", "after"),
  )
  first_norm: str = part(
    "first_norm",
    "none",
    "norm before the blocks: of the patches without positions, or of all tokens with them (CLIP)",
    choices=("none", "patches", "tokens"),
  )
  final_norm: str = part(
    "final_norm",
    "tokens",
    "norm behind the blocks: of all tokens, of the pooled vector, or none",
    choices=("tokens", "pooled", "none"),
  )
  mlp: str = part(
    "mlp",
    "plain",
    "two dense layers, or one more whose activation is a factor (SwiGLU with activation=silu)",
    choices=("plain", "gated"),
  )
  mlp_norm: bool = part("mlp_norm", False, "norm of the MLP's hidden layer")
  attention_norm: bool = part("attention_norm", False, "norm of the heads before their projection")
  qkv_bias: str = part(
    "qkv_bias",
    "all",
    "biases of queries, keys and values: all, none, or none for keys",
    choices=("all", "none", "no_key"),
  )
  dense_bias: bool = part("dense_bias", True, "biases of a block's other dense layers")
  patch_bias: bool = part("patch_bias", True, "bias of the patch embedding")
  channels: int = part(
    "channels",
    3,
    "channels of the images: 1 (grey), 3 (RGB), 4 (RGBA), or those of .npy files",
    low=1,
    high=1024,
  )
  kv_heads: int = part(
    "kv_heads", 0, "heads of keys and values; 0: as many as heads", low=0, high=2**10
  )
  kv_heads_from: int = part(
    "kv_heads_from",
    0,
    "the first and the last so many blocks have all heads of keys and values",
    low=0,
    high=256,
  )
  differential: bool = part(
    "differential", False, "attention as the difference of two maps (Differential Transformer)"
  )
  layout: str = part(
    "layout",
    "sequential",
    "attention, then MLP; or both of the same normalised input (ViT-22B)",
    choices=("sequential", "parallel"),
  )
  parallel_branches: int = part(
    "parallel_branches", 1, "attentions in a block that are added, then as many MLPs", low=1, high=8
  )
  window: int = part(
    "window",
    0,
    "rows and columns of windows that attention is within (SAM); 0: none",
    low=0,
    high=256,
  )
  global_blocks: tuple = part(
    "global_blocks", (), "blocks, counted from 0, whose attention is over the whole image"
  )
  relative_axes: bool = part(
    "relative_axes", False, "relative position embeddings along rows and along columns (MViTv2)"
  )
  neck: str = part(
    "neck",
    "none",
    "layers behind the blocks: a LayerNorm, or two convolutions with LayerNorms (SAM)",
    choices=("none", "norm", "convolutions"),
  )
  neck_dim: int = part("neck_dim", 0, "channels of these convolutions", low=0, high=2**15)
  rotary: str = part(
    "rotary",
    "none",
    "convention of rotary positions in queries and keys: of EVA-02, Perception Encoder (from 0 "
    "without a class token), RoPE-ViT (axial, mixed) or DINOv3",
    choices=("none", "eva02", "perception", "perception_from_0", "axial", "mixed", "dinov3"),
  )
  rotary_side: int = part(
    "rotary_side",
    0,
    "rows and columns of the grid that rotary places are scaled to; 0: not scaled",
    low=0,
    high=1024,
  )
  relative_dim: int = part(
    "relative_dim",
    0,
    "hidden size of the MLP of positions=relative_mlp",
    low=0,
    high=2**15,
  )
  pool_heads: int = part(
    "pool_heads", 0, "heads of attention pooling; 0: as many as heads", low=0, high=2**10
  )
  pool_mlp_dim: int = part(
    "pool_mlp_dim", 0, "hidden size of its MLP; 0: mlp_dim", low=0, high=2**17
  )
  layer_scale: bool = part(
    "layer_scale",
    False,
    "a learned factor for each channel of what attention and MLP add (LayerScale)",
  )
  layer_scale_place: str = part(
    "layer_scale_place",
    "both",
    "LayerScale of both, or of what attention adds alone",
    choices=("both", "attention"),
  )
  layer_scale_init: float = setting(
    1e-4,
    "initial value of these factors",
    low=0.0,
    high=10.0,
    used_if=(("model.layer_scale",),),
  )
  stochastic_depth: float = setting(
    0.0,
    "rate at which training leaves out the attention or the MLP of a block for an image",
    low=0.0,
    high=0.99,
  )
  stochastic_depth_rule: str = setting(
    "linear",
    "rate of each block: `linear`, from 0 in the first to stochastic_depth in the last, or "
    "`uniform`",
    choices=("linear", "uniform"),
    used_if=(("model.stochastic_depth",),),
  )

  def with_classes(self, number: int) -> "Model":
    """These settings, with `number` of classes if they leave it to the training data."""
    if self.num_classes != AUTO:
      return self
    return dataclasses.replace(self, num_classes=number)


# Settings, and fields of modules, that are no part of an architecture: weights of the same
# architecture may differ in them.
OUTSIDE = frozenset(
  {"name", "parent", "num_classes", "representation_layer", "head_bias", "head_std", "dropout"}
  | {"layer_scale_init", "stochastic_depth", "stochastic_depth_rule"}
  | {"dtype", "compute_dtype", "attention", "scan", "remat", "whole_depth"}
)
# Settings of a model that cannot be read from its parameters.
CONFIG_ONLY_FIELDS = (
  *("activation", "norm_epsilon", "norm_place", "stem_norms", "positions"),
  *("rotary", "rotary_side", "window", "global_blocks"),
)
ARCHITECTURE = tuple(field.name for field in dataclasses.fields(Model) if field.name not in OUTSIDE)
# The values of settings of the architecture that a model has no use for.
USUAL = {
  field.name: field.metadata["usual"]
  for field in dataclasses.fields(Model)
  if field.metadata["usual"] is not None
}


@dataclasses.dataclass(frozen=True)
class Translated:
  """The meaning of another library's name of a model.

  Attributes:
    name: our name of the same architecture, or of the nearest one.
    options: the settings of config.model that the architecture has otherwise than `name` says.
    image_size: side of the images that the name tells, pixels; 0: it tells none.
    lacking: a component that our names do not give, and whether weights can; "": none.
    sure: whether the name is known, not just similar to a known one.
  """

  name: str
  options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  image_size: int = 0
  lacking: str = ""
  sure: bool = True

  @property
  def same(self) -> bool:
    """Whether ours is the same architecture."""
    return self.sure and not self.lacking


def translated(name: str) -> Translated | None:
  """The meaning of `name`, ignoring case; None for our own names and for unknown ones."""
  if not name:  # no family is imported for it, because that imports JAX
    return None
  families = [*registry.FAMILIES.values()]
  if any(family.fields(name) is not None for family in families):
    return None
  found = (translate(name.lower()) for translate in registry.MODEL_NAMES.values())
  return next((meaning for meaning in found if meaning is not None), None)


def our_name(name: str) -> str:
  """Our name of the architecture; `name` itself if it is ours, or not known."""
  meaning = translated(name)
  if meaning and meaning.same:
    return meaning.name
  return name


def settings_of_name(name: str) -> dict[str, Any]:
  """The settings that another library's name stands for, such as {"model.name": "ViT-S/16"}.

  They are the whole architecture, so that nothing remains of a recipe's, and the image size if the
  name tells it. {}: the name is ours, or not known.
  """
  meaning = translated(name)
  if meaning is None or not meaning.same:
    return {}
  usual = Model()
  keys = (*ARCHITECTURE, "layer_scale_init")
  options = {key: getattr(usual, key) for key in keys} | meaning.options
  settings = {"model.name": meaning.name}
  settings |= {f"model.{key}": value for key, value in options.items()}
  if meaning.image_size:
    settings["data.image_size"] = meaning.image_size
  return settings
