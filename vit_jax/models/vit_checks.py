"""Checks that the settings of a ViT, a hybrid or an axial ViT suit each other."""

from vit_jax.config.fields import AUTO
from vit_jax.config.model import FIXED_POSITIONS, USUAL
from vit_jax.models.convolution import check_root, check_stages
from vit_jax.models.family import check_heads, check_sizes
from vit_jax.models.parts import Parts
from vit_jax.models.relative_bias import KINDS as RELATIVE_BIASES
from vit_jax.models.rotary import CONVENTIONS
from vit_jax.process.text import listed


def check(model, name: str):
  """As `Network.check`."""
  check_sizes(model, name, "patch", "depth", "width", "mlp_dim", "heads")
  check_heads(model, name)
  check_stem(model, name)
  check_axial(model, name)
  check_positions(model, name)
  check_parts(model, name)


def check_stem(model, name: str):
  """Checks the settings of the ResNet below the Transformer, which a model without one must lack.

  Raises:
    ValueError: a setting is wrong, or has no effect.
  """
  check_stages(model.stages)
  check_root(model.stem_width, "stem_width", name)
  given = {}
  if model.stages:
    given["stages"] = model.stages
  if model.stem_norms != USUAL["stem_norms"]:
    given["stem_norms"] = model.stem_norms
  for key, value in given.items():
    if not model.stem_width:
      raise ValueError(
        f"{key}={value} is of a ResNet below the Transformer, and {name} has none; give a hybrid, "
        "such as R50x1+ViT-B/16, or stem_width=64 for a ResNet below this model."
      )


def check_axial(model, name: str):
  """Checks that an axial model has nothing that needs all tokens of an image at once.

  Raises:
    ValueError: it has.
  """
  if not model.axial:
    return
  if model.pool == "class_token":
    raise ValueError(
      f"pool='class_token' does not suit {name}: axial attention has no place for a class token; "
      "use 'gap' or 'map'."
    )
  if model.tokens_before():
    raise ValueError(
      f"axial=True does not suit {name}: axial attention has no place for tokens before the "
      f"patches, {listed([*model.learned_tokens()])}."
    )
  if model.stochastic_depth:
    raise ValueError(
      f"stochastic_depth={model.stochastic_depth} is drawn for whole images, and axial attention "
      f"cuts them into rows and columns; give {name} stochastic_depth=0."
    )
  paper = Parts(norm=model.norm)
  for key, value in vars(model.parts).items():
    if value != getattr(paper, key):
      raise ValueError(f"{key}={value!r} does not suit axial attention; leave it out of {name}.")


def check_positions(model, name: str):
  """Checks the settings of position embeddings.

  Raises:
    ValueError: one does not suit the model, or has no effect.
  """
  if model.positions in FIXED_POSITIONS and (model.width % 4 or model.width < 8):
    raise ValueError(
      f"positions={model.positions!r} has a sine and a cosine for the row and for the column, and "
      f"the width of {name}, {model.width}, is not a multiple of 4 from 8 on; use '1d' or such a "
      "width."
    )
  if model.positions == "2d" and model.width % 2:
    raise ValueError(
      f"positions='2d' gives row and column half of the width each, and the width of {name}, "
      f"{model.width}, is odd; use '1d' or an even width."
    )
  shared = model.positions in RELATIVE_BIASES and model.position_place == "every_layer_shared"
  if model.positions not in ("1d", "2d") and model.position_place != "stem" and not shared:
    adds = "adds none to them"
    if model.positions in FIXED_POSITIONS:
      adds = "are added at the stem alone"
    raise ValueError(
      f"position_place={model.position_place!r} says where position embeddings are added to the "
      f"tokens, and positions={model.positions!r} {adds}; use '1d' or '2d'."
    )
  if model.positions in RELATIVE_BIASES and (model.tokens_before() > 1 or model.axial):
    raise ValueError(
      f"positions={model.positions!r} has biases for patches and a class token, and {name} has "
      "other tokens or axial attention; use '1d'."
    )
  if (model.positions == "relative_mlp") != bool(model.relative_dim):
    raise ValueError(
      f"relative_dim={model.relative_dim} is the hidden size of the MLP of positions="
      f"'relative_mlp', and {name} has positions={model.positions!r}; give both or neither."
    )
  if model.rotary != "none" and (model.width // model.heads) % 4:
    raise ValueError(
      f"rotary={model.rotary!r} turns pairs of channels by row and by column, and a head of {name} "
      f"has {model.width // model.heads} channels, not a multiple of 4; give other heads."
    )
  scaled = model.rotary in CONVENTIONS and not CONVENTIONS[model.rotary].learned
  if model.rotary_side and not scaled:
    raise ValueError(
      f"rotary_side={model.rotary_side} scales fixed rotary places, and {name} has rotary="
      f"{model.rotary!r}; leave it out."
    )


def check_parts(model, name: str):
  """Checks that the parts of blocks and pooling suit each other.

  Raises:
    ValueError: two do not.
  """
  fewer = model.kv_heads
  if fewer and (model.heads % fewer or fewer == model.heads):
    raise ValueError(
      f"kv_heads={fewer} must divide the {model.heads} heads of {name} and be fewer; give such a "
      "number, or 0."
    )
  if fewer and model.rotary in CONVENTIONS and CONVENTIONS[model.rotary].learned:
    raise ValueError(
      f"kv_heads={fewer} does not suit rotary={model.rotary!r} of {name}, which turns the keys of "
      "each head by frequencies of its own; give kv_heads=0."
    )
  if model.kv_heads_from and (not fewer or 2 * model.kv_heads_from >= model.depth or model.scan):
    raise ValueError(
      f"kv_heads_from={model.kv_heads_from} leaves blocks in the middle with fewer heads of keys "
      f"and values, given by kv_heads, in a model without scan; {name} has kv_heads={fewer}, "
      f"depth={model.depth} and scan={model.scan}."
    )
  _check_windows(model, name)
  if model.differential:
    _check_differential(model, name)
  if model.layout == "parallel":
    once = dict(norm_place="before", parallel_branches=1, layer_scale_place="both")
    for key, value in once.items():
      if getattr(model, key) != value:
        raise ValueError(f"layout='parallel' needs {key}={value!r} in {name}.")
  for key, value in dict(representation_layer=True, final_norm="pooled").items():
    if model.pool == "distilled" and getattr(model, key) == value:
      raise ValueError(
        f"{key}={value!r} does not suit pool='distilled' of {name}, which has two tokens for the "
        "head."
      )
  if (model.pool_heads or model.pool_mlp_dim) and not model.pool.startswith("map"):
    raise ValueError(
      f"pool_heads={model.pool_heads} and pool_mlp_dim={model.pool_mlp_dim} are of attention "
      f"pooling, and {name} has pool={model.pool!r}; give 0 for both."
    )
  if model.pool_heads and model.width % model.pool_heads:
    raise ValueError(
      f"pool_heads={model.pool_heads} does not divide the width {model.width} of {name}."
    )


def _check_windows(model, name):
  if model.global_blocks and (not model.window or model.scan):
    raise ValueError(
      f"global_blocks={model.global_blocks} are blocks without the windows of the others, in a "
      f"model without scan; {name} has window={model.window} and scan={model.scan}."
    )
  of_map = bool(model.window) or model.relative_axes or model.neck != "none"
  if of_map and (model.tokens_before() or model.axial or model.pool.startswith("map")):
    raise ValueError(
      f"window={model.window}, relative_axes={model.relative_axes} and neck={model.neck!r} need a "
      f"map of patches alone, pooled by their mean; give {name} pool='gap' and no registers."
    )
  if of_map and (model.rotary != "none" or model.positions.startswith("relative")):
    raise ValueError(
      f"rotary={model.rotary!r} and positions={model.positions!r} do not suit windows, "
      f"relative_axes and a neck; give {name} rotary='none' and positions='1d'."
    )
  if (model.neck == "convolutions") != bool(model.neck_dim):
    raise ValueError(
      f"neck_dim={model.neck_dim} is of neck='convolutions', and {name} has neck={model.neck!r}; "
      "give both or neither."
    )


def _check_differential(model, name):
  if (model.width // model.heads) % 2:
    raise ValueError(
      f"differential=True halves the channels of a head, and {name} has "
      f"{model.width // model.heads}; give other heads."
    )
  others = dict(qk_norm=False, rotary="none", kv_heads=0, attention="xla")
  others |= dict(window=0, relative_axes=False)
  if model.positions.startswith("relative"):
    others["positions"] = "1d"
  for key, value in others.items():
    if getattr(model, key) not in (value, AUTO):
      raise ValueError(
        f"{key}={getattr(model, key)!r} does not suit differential attention; give {name} "
        f"{key}={value!r}."
      )
