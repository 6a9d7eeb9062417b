"""Weights as a folder for Hugging Face's ViTForImageClassification.

Weights without a head are a ViTModel. Reading leaves out a ViTModel's pooler.
"""

import json
import logging
import pathlib
import re

from vit_jax.config import AUTO, Model
from vit_jax.config.model import USUAL
from vit_jax.data import datasets
from vit_jax.extras.formats import huggingface_images as images
from vit_jax.extras.formats import pickled
from vit_jax.models.positions import ADDED
from vit_jax.models.recognition import module_of
from vit_jax.process.text import listed
from vit_jax.storage.files import write_text
from vit_jax.storage.tree import flatten, nest
from vit_jax.weights import card as cards
from vit_jax.weights import pixels, safetensors
from vit_jax.weights.card import DEEP, RULES, Card, Rule, inferred, one_of, or_none, whole
from vit_jax.weights.fit import fit
from vit_jax.weights.format import WeightFormat
from vit_jax.weights.translation import (
  CONVOLUTION,
  DENSE,
  FROM_HEADS,
  SAME,
  Table,
  layer,
  norm,
  to_heads,
)

CONFIG = "config.json"
NOTES = "README.md"
WEIGHTS = "model.safetensors"
_BLOCK = "Transformer/encoderblock_{0}"
_THEIR_BLOCK = "vit.encoder.layer.{0}"
_ATTENTION = f"{_BLOCK}/MultiHeadDotProductAttention_1"
NAMES = Table(
  ("cls", "vit.embeddings.cls_token", SAME),
  ("Transformer/posembed_input/pos_embedding", "vit.embeddings.position_embeddings", SAME),
  *layer("embedding", "vit.embeddings.patch_embeddings.projection", CONVOLUTION),
  *norm(f"{_BLOCK}/LayerNorm_0", f"{_THEIR_BLOCK}.layernorm_before"),
  *to_heads(f"{_ATTENTION}/query", f"{_THEIR_BLOCK}.attention.attention.query"),
  *to_heads(f"{_ATTENTION}/key", f"{_THEIR_BLOCK}.attention.attention.key"),
  *to_heads(f"{_ATTENTION}/value", f"{_THEIR_BLOCK}.attention.attention.value"),
  *layer(f"{_ATTENTION}/out", f"{_THEIR_BLOCK}.attention.output.dense", FROM_HEADS),
  *norm(f"{_BLOCK}/LayerNorm_2", f"{_THEIR_BLOCK}.layernorm_after"),
  *layer(f"{_BLOCK}/MlpBlock_3/Dense_0", f"{_THEIR_BLOCK}.intermediate.dense", DENSE),
  *layer(f"{_BLOCK}/MlpBlock_3/Dense_1", f"{_THEIR_BLOCK}.output.dense", DENSE),
  *norm("Transformer/encoder_norm", "vit.layernorm"),
  *layer("head", "classifier", DENSE),
)
ALONE = ("embeddings.", "encoder.", "layernorm.", "pooler.")  # names in a ViTModel
NOT_OURS = ("vit.pooler.", "decoder.")  # not used for image features
WITH_HEAD = ["ViTForImageClassification"]
WITHOUT_HEAD = ["ViTModel"]
MASKED = (["ViTMAEForPreTraining"], ["ViTMAEModel"])  # their encoders are ViTs
# What other models have and ours do not, by their model_type.
LACKING = {
  "deit": "a distillation token",
  "dinov2_with_registers": "register tokens",
  "dinov3_vit": "register tokens and rotary positions",
  "clip": "a norm before the blocks",
  "clip_vision_model": "a norm before the blocks",
  "beit": "its own relative position embeddings",
  "data2vec-vision": "its own relative position embeddings",
  "swin": "windows of attention",
  "swinv2": "windows of attention",
}
# For each of our activations, transformers' names; exports use the first.
ACTIVATIONS = {
  "gelu_tanh": ["gelu_pytorch_tanh", "gelu_new", "gelu_fast", "gelu_accurate", "gelu_python_tanh"],
  "gelu": ["gelu", "gelu_python"],
}
PROBLEM_TYPES = {"softmax": "single_label_classification", "sigmoid": "multi_label_classification"}
EPSILONS = Rule(lambda x: isinstance(x, float) and 0 < x <= 1e-2, "above 0, at most 0.01")
# For each relevant key of config.json: the values with which this project computes the same, and
# the default for a missing key: transformers', or ours for a key of our own.
COMPUTED = {
  "architectures": (one_of(WITH_HEAD, WITHOUT_HEAD, *MASKED), None),
  "model_type": (one_of("vit", "vit_mae"), "vit"),
  "hidden_act": (one_of(*ACTIVATIONS["gelu"], *ACTIVATIONS["gelu_tanh"]), "gelu"),
  "layer_norm_eps": (EPSILONS, 1e-12),
  "num_attention_heads": (whole(1, 10**4), 12),
  "num_channels": (one_of(3), 3),
  "qkv_bias": (one_of(True), True),
  "problem_type": (one_of(*PROBLEM_TYPES.values(), None), None),
  "pruned_heads": (one_of({}, None), None),
  "quantization_config": (one_of(None), None),
  "image_size": (RULES["image_size"], 224),
  "representation": (RULES["representation"], Card.representation),
  "average": (RULES["average"], Card.average),
  "positions": (one_of("none", "relative", *ADDED), "none"),
  "resampling": (or_none(RULES["resampling"]), None),
  "position_resizing": (or_none(RULES["position_resizing"]), None),
}
_log = logging.getLogger(__name__)
POSITION_RESIZING = "bicubic"  # of Transformers' models
TRAINED_ON = "vit_jax_trained_on"  # a key of our own, as "representation" and "average" are
README = f"""# Images for this model

preprocessor_config.json says how images are prepared. vit_jax trained this model. In [CASES] cases
transformers gives other pixels than vit_jax, and so other probabilities:

- {DEEP}
- Images with transparent parts: these are white for vit_jax. transformers.pipeline, as Pillow's
  convert('RGB'), shows the colour that is stored there, often black. Put such images on
  white first.
"""
LARGE = """\
- Images that are larger than the model's, [SIDE] pixels: Hugging Face's processors average
  pixels (antialiasing), and vit_jax interpolates the four nearest pixels. Measured on 200 test
  images of Fashion-MNIST (28 pixels) with a model that gets 84% right: at 28 pixels no difference;
  enlarged to 56 to 800 pixels, with noise or without, the probability of the class differed by 0.04
  to 0.08 in the mean, by 0.71 at most, and 5% to 10% of the images got another class. To have
  vit_jax's pixels, to 1 of 255, resize before the processor:

      import cv2, numpy
      image = numpy.asarray(image.convert("RGB"))
      [RESIZED]
"""
SQUARE = "image = cv2.resize(image, ([SIDE], [SIDE]))"
SMALLER_SIDE = """height, width = image.shape[:2]
      scale = [RESIZE] / min(height, width)
      image = cv2.resize(image, (round(width * scale), round(height * scale)))"""


def _settings_in(folder: pathlib.Path) -> dict:
  """The content of config.json.

  Raises:
    ValueError: the model computes something else than models of this project.
  """
  values = cards.read_json(folder / CONFIG)
  kind = values.get("model_type")
  if isinstance(kind, str) and kind in LACKING:
    raise ValueError(
      f"it has {LACKING[kind]} (model_type {kind!r}), which no model of this project has"
    )
  settings = cards.checked(values, COMPUTED, folder / CONFIG)
  if settings["architectures"] in MASKED:
    return settings | {"architectures": WITHOUT_HEAD}
  return settings


def activation_of(hidden_act: str) -> str:
  """Our activation with one of transformers' names in `ACTIVATIONS`."""
  return next(ours for ours, theirs in ACTIVATIONS.items() if hidden_act in theirs)


def _load(folder: pathlib.Path) -> dict:
  settings = _settings_in(folder)
  if not (folder / WEIGHTS).is_file():
    raise ValueError(
      pickled.advice_in(folder)
      or f"it has no {WEIGHTS} (weights in several files are not read); save the model "
      "with save_pretrained(..., safe_serialization=True, max_shard_size='100GB')"
    )
  flat = _within_vit(safetensors.load_arrays(folder / WEIGHTS), settings["architectures"])
  try:
    params = nest(NAMES.ours(flat, settings["num_attention_heads"]))
  except KeyError as error:
    raise ValueError(f"{error} is not part of a {WITH_HEAD[0]}") from error
  for key, size in _sizes(params).items():
    if settings.get(key) != size:
      raise ValueError(f"{key} is {settings.get(key)!r} in {CONFIG}, and {size} by the arrays")
  prepared = _prepared(folder, settings)
  return pixels.folded(params, prepared.mean, prepared.deviation)


def _prepared(folder: pathlib.Path, settings: dict) -> images.Prepared:
  """How images are prepared; without a file about it, as usual for a ViT of this size.

  Raises:
    ValueError: this project cannot prepare them so, or the size is not the model's.
  """
  side = settings["image_size"]
  prepared = images.read_processor(folder, "ViT") or images.usual(side)
  if prepared.size != side:
    raise ValueError(
      f"{folder / images.FILE} makes images of {prepared.size} pixels, and image_size is {side} in "
      f"{CONFIG}"
    )
  return prepared


def _within_vit(flat: dict, architectures: list[str]) -> dict:
  """The arrays of a model without a head, named as in a model with a head.

  Leaves out a pooler, and the decoder of a masked autoencoder.
  """
  if architectures == WITH_HEAD:
    return flat
  named = {}
  for name, array in flat.items():
    if name.startswith(ALONE):
      name = f"vit.{name}"
    named[name] = array
  others = sorted(name for name in named if name.startswith(NOT_OURS))
  if others:
    _log.warning(
      "Left out, because models of this project have no pooler or decoder: %s.", listed(others)
    )
  return {name: array for name, array in named.items() if name not in others}


def _card(folder: pathlib.Path, params: dict | None) -> Card:
  settings = _settings_in(folder)
  prepared = _prepared(folder, settings)
  usual_resampling = ""
  usual_position_resizing = POSITION_RESIZING
  if TRAINED_ON in settings:  # an export of ours; older ones do not say how to resize
    usual_resampling = Card.resampling
    usual_position_resizing = Card.position_resizing
  resampling = settings["resampling"] or usual_resampling
  loss = "sigmoid" if settings["problem_type"] == PROBLEM_TYPES["sigmoid"] else "softmax"
  return Card(
    image_size=settings["image_size"],
    resize=prepared.resize,
    squeeze=prepared.squeeze,
    resampling=images.resampling_of(prepared, resampling),
    position_resizing=settings["position_resizing"] or usual_position_resizing,
    class_names=_class_names(settings),
    loss=loss,
    model=Model(
      activation=activation_of(settings["hidden_act"]),
      norm_epsilon=settings["layer_norm_eps"],
      positions=settings["positions"],
    ),
    representation=settings["representation"],
    trained_on=datasets.read_history(settings.get(TRAINED_ON, [])),
    average=settings["average"],
  )


def _class_names(settings: dict) -> tuple[str, ...]:
  classes = settings.get("id2label")
  if classes is None and settings["architectures"] == WITH_HEAD:
    classes = {"0": "LABEL_0", "1": "LABEL_1"}  # transformers' own names, which it does not write
  elif classes is None:
    classes = {}
  if not isinstance(classes, dict) or set(classes) != {str(i) for i in range(len(classes))}:
    raise ValueError("id2label must name the classes 0, 1, 2, ...")
  return tuple(str(classes[str(i)]) for i in range(len(classes)))


def _save(folder: pathlib.Path, params: dict, card: Card | None):
  card = card or inferred(params)
  params = _at_size(params, card)
  try:
    flat = NAMES.theirs(flatten(params))
  except KeyError as error:
    raise _no_place(error.args[0]) from error
  settings = _sizes(params) | _settings(params, card)
  if (folder / CONFIG).exists():
    cards.read_by_rules(folder / CONFIG, COMPUTED)  # a folder of another kind is not replaced
  folder.mkdir(parents=True, exist_ok=True)
  safetensors.save_arrays(folder / WEIGHTS, flat, {})
  prepared = images.written(card)
  for name, content in ((CONFIG, settings), (images.FILE, prepared)):
    write_text(folder / name, json.dumps(content, indent=2) + "\n")
  if _unchanged(folder / NOTES):
    write_text(folder / NOTES, _notes_on_images(card))


def _at_size(params: dict, card: Card) -> dict:
  """The parameters with position embeddings for the card's image size, which their model needs."""
  module = module_of(params)
  side = card.image_size
  if side in (0, inferred(params).image_size) or not inferred(params).image_size:
    return params
  grid = module.grid(side, side)
  shapes = module.parameter_shapes(side)
  return fit(params, shapes, grid, position_resizing=card.position_resizing)[0]


def _notes_on_images(card: Card) -> str:
  """The text for users who prepare images for the model."""
  text = README.replace("[CASES]", "two")
  if card.resampling == Card.resampling:
    text = README.replace("[CASES]", "three") + LARGE
  resized = SQUARE
  if card.resize and not card.squeeze:
    resized = SMALLER_SIDE
  side = card.resize if card.squeeze else card.image_size
  text = text.replace("[RESIZED]", resized)
  return text.replace("[SIDE]", str(side)).replace("[RESIZE]", str(card.resize))


def _unchanged(path: pathlib.Path) -> bool:
  """Whether notes may be replaced: there are none, or nobody changed those of an earlier export."""
  if not path.exists():
    return True
  cards = (Card(0), Card(0, resize=1), Card(0, resampling=f"pillow_{images.FILTERS[0]}"))
  written = [_without_sizes(_notes_on_images(card)) for card in cards]
  return _without_sizes(path.read_text(encoding="utf-8", errors="replace")) in written


def _without_sizes(text: str) -> str:
  return re.sub(r"\d+", "0", text)


def _no_place(what: str) -> ValueError:
  return ValueError(f"Hugging Face's ViTForImageClassification has no place for {what}.")


def _sizes(params: dict) -> dict:
  """The keys of config.json that follow from the parameters, named as in NAMES.

  Raises:
    ValueError: the class token or the position embeddings are missing.
  """
  module = module_of(params)
  if module.pool != "class_token" or module.positions == "none":
    raise _no_place("a model without class token or without position embeddings")
  return {
    "architectures": WITH_HEAD if "head" in params else WITHOUT_HEAD,
    "hidden_size": module.width,
    "num_hidden_layers": module.depth,
    "num_attention_heads": module.heads,
    "intermediate_size": module.mlp_dim,
    "image_size": inferred(params).image_size,
    "patch_size": module.patch,
  }


def _settings(params: dict, card: Card) -> dict:
  """The keys of config.json that follow from the card."""
  known = {key: value for key, value in vars(card.model).items() if value != AUTO}
  model = USUAL | {"positions": "none"} | known
  names = card.class_names
  if not names and "head" in params:
    names = tuple(f"class {i}" for i in range(params["head"]["bias"].size))
  return {
    "model_type": "vit",
    "hidden_act": ACTIVATIONS[model["activation"]][0],
    "layer_norm_eps": model["norm_epsilon"],
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "num_channels": 3,
    "qkv_bias": True,
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
