"""Settings of the architecture."""

import dataclasses

from vit_jax.config.fields import AUTO, setting


@dataclasses.dataclass(frozen=True)
class Model:
  """The architecture. A setting that is 0 or empty takes its value from the name."""

  name: str = setting(
    "ViT-B/16",
    "a name from vit_jax.models.names(), or a variant such as ViT-B/20 or R50x1+ViT-B/16p2 "
    "(patches of 2 x 2 positions on a hybrid's map); on the command line also a name of timm or "
    "Transformers, for its whole architecture (docs/from-timm.md); empty: the model of the weights "
    "in config.init_from, or, with --mode=evaluate, of the weights that are evaluated",
  )
  num_classes: int = setting(
    0,
    "outputs of the head; 0: as many as the training data has classes",
    low=1,
    high=10**7,
    off=0,
  )
  patch: int = setting(
    0, "side of a patch: pixels, or positions of a hybrid's map (1 in the names)", low=0, high=9999
  )
  depth: int = setting(0, "number of blocks", low=0, high=256)
  width: int = setting(0, "hidden size D; for a ResNet, channels of its root", low=0, high=2**15)
  mlp_dim: int = setting(0, "hidden size of the MLP", low=0, high=2**17)
  heads: int = setting(
    0, "attention heads; a ResNet has them only if it is axial", low=0, high=2**10
  )
  stages: tuple = setting((), "residual units in each stage of a ResNet or of a hybrid's ResNet")
  pool: str = setting(
    "",
    "input of the head: the class token, the mean of the patches, or attention pooling",
    choices=("", "class_token", "gap", "map"),
  )
  representation_layer: bool = setting(False, "dense layer of size D and tanh before the head")
  positions: str = setting(
    "1d",
    "kind of position embedding; sincos2d and sincos2d_mae are fixed, as in Beyer et al. (2022) "
    "and as in MAE",
    choices=("1d", "2d", "relative", "none", "sincos2d", "sincos2d_mae"),
  )
  position_place: str = setting(
    "stem",
    "where 1d and 2d position embeddings are added",
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
    "standard deviation of the head's initial kernel; 0: it begins at zero, as in the paper",
    low=1e-6,
    high=1.0,
    off=0.0,
    used_if=(("objective.trains_head",),),
  )
  compute_dtype: str = setting(
    "float32",
    "type of activations; parameters stay float32. auto: float32 on a CPU, where bfloat16 is "
    "slower, and bfloat16 elsewhere; a resumed run keeps the type that it began with",
    choices=("float32", "bfloat16", AUTO),
  )
  scan: bool = setting(False, "blocks stacked under one scan: compiles in seconds, but runs slower")
  remat: str = setting(
    "none",
    "what the backward pass recomputes to save memory: nothing, all but the outputs of dense "
    "layers, or everything",
    choices=("none", "dots", "everything"),
  )
  attention: str = setting(
    AUTO,
    "which library computes attention: cuDNN, on NVIDIA GPUs and in bfloat16, or XLA; auto: cuDNN "
    "where it can. A resumed run that began with XLA keeps it",
    choices=(AUTO, "xla", "cudnn"),
  )
  activation: str = setting(
    "gelu_tanh",
    "GELU of the MLPs: the tanh form of the published weights, or the exact form of many others",
    choices=("gelu_tanh", "gelu"),
  )
  norm_epsilon: float = setting(
    1e-6, "added to the variance in every LayerNorm", low=1e-15, high=1e-2
  )
  stem_norms: str = setting(
    "published",
    "normalisation of a hybrid's ResNet: that of the published weights, or that of timm's models",
    choices=("published", "timm"),
  )

  # What the paper's models do not have.
  registers: int = setting(
    0, "learned tokens behind the class token that stand for no patch", low=0, high=1000
  )
  qk_norm: bool = setting(False, "LayerNorm of the queries and keys of each head")
  layer_scale: bool = setting(
    False, "a learned factor for each channel of what attention and MLP add (LayerScale)"
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
    "rate at which training leaves out what the attention or the MLP of a block adds to an image",
    low=0.0,
    high=0.99,
  )
  stochastic_depth_rule: str = setting(
    "linear",
    "the rate of each block: linear, from 0 in the first block to stochastic_depth in the last; or "
    "uniform, the same in all",
    choices=("linear", "uniform"),
    used_if=(("model.stochastic_depth",),),
  )

  def with_classes(self, number: int) -> "Model":
    """These settings, with `number` of classes if they leave it to the training data."""
    return dataclasses.replace(self, num_classes=self.num_classes or number)


# Fields of modules, and settings, that do not belong to an architecture: what weights of the same
# architecture may differ in.
OUTSIDE = frozenset(
  {"name", "parent", "num_classes", "representation_layer", "head_bias", "head_std", "dropout"}
  | {"layer_scale_init", "stochastic_depth", "stochastic_depth_rule"}
  | {"dtype", "compute_dtype", "attention", "scan", "remat"}
)
ARCHITECTURE = tuple(field.name for field in dataclasses.fields(Model) if field.name not in OUTSIDE)
