"""Weights as a folder for Hugging Face's ViTForImageClassification.

Weights without a head are a ViTModel; a ViTModel's pooler is left out when it is read.
"""

import json
import logging
import pathlib

from vit_jax.data import history
from vit_jax.models import ViT
from vit_jax.models.recognition import module_of
from vit_jax.storage.files import write_text
from vit_jax.storage.tree import flatten, nest
from vit_jax.weights import safetensors
from vit_jax.weights.card import DEEP, MAX_EPSILON, RULES, Card, inferred, read_json
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

CONFIG, PREPROCESSOR, NOTES = "config.json", "preprocessor_config.json", "README.md"
WEIGHTS = "model.safetensors"
_BLOCK, _THEIR_BLOCK = "Transformer/encoderblock_{0}", "vit.encoder.layer.{0}"
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
ALONE = ("embeddings.", "encoder.", "layernorm.", "pooler.")  # a ViTModel that was saved by itself
WITH_HEAD, WITHOUT_HEAD = ["ViTForImageClassification"], ["ViTModel"]
# For each of our activations, transformers' names; exports use the first.
ACTIVATIONS = {
  "gelu_tanh": (
    *("gelu_pytorch_tanh", "gelu_new", "gelu_fast", "gelu_accurate", "gelu_python_tanh"),
  ),
  "gelu": ("gelu", "gelu_python"),
}
PROBLEM_TYPES = {
  "softmax": "single_label_classification",
  "sigmoid": "multi_label_classification",
}
# For each key that changes what transformers computes: the values for which this project computes
# the same, and transformers' default for a missing key.
COMPUTED = {
  "architectures": ((WITH_HEAD, WITHOUT_HEAD), None),
  "model_type": (("vit",), "vit"),
  "hidden_act": ((*ACTIVATIONS["gelu"], *ACTIVATIONS["gelu_tanh"]), "gelu"),
  "num_channels": ((3,), 3),
  "qkv_bias": ((True,), True),
  "problem_type": ((*PROBLEM_TYPES.values(), None), None),
  "pruned_heads": (({}, None), None),
  "quantization_config": ((None,), None),
}
HALF = [0.5] * 3
PREPARED = {
  "image_processor_type": (
    *(("ViTImageProcessor", "ViTImageProcessorFast", "ViTImageProcessorPil", None), None),
  ),
  "feature_extractor_type": (("ViTFeatureExtractor", None), None),
  "image_mean": ((HALF,), HALF),
  "image_std": ((HALF,), HALF),
  "resample": ((2,), 2),
  "do_resize": ((True,), True),
  "do_rescale": ((True,), True),
  "rescale_factor": ((1 / 255,), 1 / 255),
  "do_normalize": ((True,), True),
  "do_center_crop": ((False, None), None),
  "do_pad": ((False, None), None),
}
DEFAULT_EPSILON = 1e-12  # transformers' default
MAX_HEADS = 10**4
_log = logging.getLogger(__name__)
TRAINED_ON = "vit_jax_trained_on"  # a key of our own, as "representation" and "average" are
README = f"""# Images for this model

preprocessor_config.json says how images are prepared. vit_jax trained this model. In three cases
transformers gives other pixels than vit_jax, and so other probabilities:

- {DEEP}
- Images with transparent parts: these are white for vit_jax. transformers.pipeline, as Pillow's
  convert('RGB'), shows the colour that is stored there, often black. Put such images on
  white first.
- Images that are larger than the model's, [SIDE] x [SIDE] pixels: Hugging Face's processors average
  pixels (antialiasing), and vit_jax interpolates the four nearest pixels. Measured on 200 test
  images of Fashion-MNIST (28 pixels) with a model that gets 84% right: at 28 pixels no difference;
  enlarged to 56 to 800 pixels, with noise or without, the probability of the class differed by 0.04
  to 0.08 in the mean, by 0.71 at most, and 5% to 10% of the images got another class. To have
  vit_jax's pixels, to 1 of 255, resize before the processor:

      import cv2, numpy
      image = cv2.resize(numpy.asarray(image.convert("RGB")), ([SIDE], [SIDE]))
"""


def _load(folder: pathlib.Path) -> dict:
  settings = read_settings(folder)
  if not (folder / WEIGHTS).is_file():
    raise ValueError(
      f"it has no {WEIGHTS} (weights in several files or as pickles are not read); save the model "
      "with save_pretrained(..., safe_serialization=True, max_shard_size='100GB')"
    )
  flat = _within_vit(safetensors.load_arrays(folder / WEIGHTS), settings["architectures"])
  try:
    params = nest(NAMES.ours(flat, settings["num_attention_heads"]))
  except KeyError as error:
    raise ValueError(f"{error} is not part of a {WITH_HEAD[0]}") from error
  for key, size in sizes(params).items():
    if settings.get(key) != size:
      raise ValueError(
        f"{key} is {_shown(settings.get(key))} in {CONFIG}, and {size} by the arrays"
      )
  return params


def _save(folder: pathlib.Path, params: dict, card: Card | None):
  card = card or inferred(params)
  settings = sizes(params) | _settings(params, card)
  if card.resize:
    raise _no_place("a centre cut out of a larger resized image (config.data.evaluate_resize)")
  if (folder / CONFIG).exists():
    read_settings(folder)  # raises for a folder of another kind: do not replace it
  folder.mkdir(parents=True, exist_ok=True)
  safetensors.save_arrays(folder / WEIGHTS, NAMES.theirs(flatten(params)), {})
  for name, content in ((CONFIG, settings), (PREPROCESSOR, _preprocessor(card.image_size))):
    write_text(folder / name, json.dumps(content, indent=2) + "\n")
  if not (folder / NOTES).exists():  # the user may have written it
    write_text(folder / NOTES, README.replace("[SIDE]", str(card.image_size)))


def read_settings(folder: pathlib.Path) -> dict:
  """Reads config.json of a model that this project can compute.

  Raises:
    ValueError: this project does not compute such a model; names the keys.
  """
  settings = _json(folder / CONFIG)
  wrong = differing(settings, COMPUTED)
  epsilon, heads = _epsilon(settings), settings.get("num_attention_heads")
  if type(epsilon) is not float or not 0 < epsilon <= MAX_EPSILON:
    wrong.append(f"layer_norm_eps is {_shown(epsilon)} and must be above 0, at most {MAX_EPSILON}")
  if type(heads) is not int or not 0 < heads <= MAX_HEADS:
    wrong.append(f"num_attention_heads is {_shown(heads)} and must be a number up to {MAX_HEADS:,}")
  if wrong:
    raise ValueError(
      f"{folder / CONFIG} describes a model that this project does not compute: {'; '.join(wrong)}."
    )
  return settings


def sizes(params: dict) -> dict:
  """The keys of config.json that follow from the parameters.

  Raises:
    ValueError: ViTForImageClassification does not compute the same as this model; names the first
      part that it cannot express.
  """
  module = module_of(params)
  if not isinstance(module, ViT) or "conv_root" in params:
    raise _no_place("a ResNet")
  reasons = {
    "a representation layer (pre_logits)": module.representation_layer,
    "a model without class token (pool='gap' or 'map')": module.pool != "class_token",
    "position embeddings other than 1-D at the stem": (
      (module.positions, module.position_place) != ("1d", "stem")
    ),
  }
  for what, here in reasons.items():
    if here:
      raise _no_place(what)
  return {
    "architectures": WITH_HEAD if "head" in params else WITHOUT_HEAD,
    "hidden_size": module.width,
    "num_hidden_layers": module.depth,
    "num_attention_heads": module.heads,
    "intermediate_size": module.mlp_dim,
    "image_size": inferred(params).image_size,
    "patch_size": module.patch,
  }


def differing(settings: dict, expected: dict) -> list[str]:
  """Describes the keys of `settings` whose value is not an expected one.

  Args:
    settings: {key: value}.
    expected: {key: (allowed values, default of a missing key)}.
  """
  return [
    f"{key} is {_shown(settings.get(key, default))} and must be {values[0]!r}"
    for key, (values, default) in expected.items()
    if settings.get(key, default) not in values
  ]


def _shown(value) -> str:
  return repr(value)[:60]


def _json(path: pathlib.Path) -> dict:
  settings = read_json(path)
  if not isinstance(settings, dict):
    raise ValueError(f"{path} is not a JSON object.")
  return settings


def _no_place(what: str) -> ValueError:
  return ValueError(f"Hugging Face's ViTForImageClassification has no place for {what}.")


def _within_vit(flat: dict, architectures: list[str]) -> dict:
  """The arrays of a ViTModel under the names that they have in a model with a head.

  The pooler, which belongs to no image's features, is left out.
  """
  if architectures != WITHOUT_HEAD:
    return flat
  named = {f"vit.{name}" if name.startswith(ALONE) else name: x for name, x in flat.items()}
  pooler = sorted(name for name in named if name.startswith("vit.pooler."))
  if pooler:
    _log.warning("Left out, because models of this project have no pooler: %s.", ", ".join(pooler))
  return {name: x for name, x in named.items() if name not in pooler}


def _epsilon(settings: dict) -> float:
  return settings.get("layer_norm_eps", DEFAULT_EPSILON)


def _card(folder: pathlib.Path, params: dict | None) -> Card:
  settings = {"representation": Card.representation, "average": Card.average, TRAINED_ON: []}
  settings |= read_settings(folder)
  if (folder / PREPROCESSOR).is_file():
    _check_preprocessor(folder / PREPROCESSOR, settings.get("image_size"))
  for key in ("image_size", "representation", "average"):
    RULES[key].check(key, settings.get(key))
  return Card(
    image_size=settings["image_size"],
    class_names=_class_names(settings),
    loss="sigmoid" if settings.get("problem_type") == PROBLEM_TYPES["sigmoid"] else "softmax",
    activation=_activation(settings),
    norm_epsilon=_epsilon(settings),
    representation=settings["representation"],
    trained_on=history.read(settings[TRAINED_ON]),
    average=settings["average"],
  )


def _class_names(settings: dict) -> tuple[str, ...]:
  classes = settings.get("id2label")
  if classes is None:  # transformers leaves out its own names, which are of two classes
    two = {"0": "LABEL_0", "1": "LABEL_1"}
    classes = two if settings["architectures"] == WITH_HEAD else {}
  if not isinstance(classes, dict) or set(classes) != {str(i) for i in range(len(classes))}:
    raise ValueError("id2label must name the classes 0, 1, 2, ...")
  return tuple(str(classes[str(i)]) for i in range(len(classes)))


def _activation(settings: dict) -> str:
  name = settings.get("hidden_act", COMPUTED["hidden_act"][1])
  return next(ours for ours, theirs in ACTIVATIONS.items() if name in theirs)


def _settings(params: dict, card: Card) -> dict:
  """The keys of config.json that the card tells."""
  outputs = params["head"]["bias"].size if "head" in params else 0
  names = card.class_names or tuple(f"class {i}" for i in range(outputs))
  return {
    "model_type": "vit",
    "hidden_act": ACTIVATIONS[card.activation][0],
    "layer_norm_eps": card.norm_epsilon,
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
    TRAINED_ON: history.written(card.trained_on),
    "torch_dtype": "float32",
  }


def _check_preprocessor(path: pathlib.Path, side: int):
  """Checks that the folder's images are prepared as in this project.

  Raises:
    ValueError: they are prepared in another way; names the keys.
  """
  settings = _json(path)
  square = {"height": side, "width": side}
  size = {"size": ((square, side), {"height": 224, "width": 224})}
  if wrong := differing(settings, PREPARED | size):
    raise ValueError(
      f"{path} prepares images in another way than this project: {'; '.join(wrong)}."
    )


def _preprocessor(side: int) -> dict:
  values = {key: allowed[0] for key, (allowed, _) in PREPARED.items() if allowed[0]}
  del values["feature_extractor_type"]
  return values | {"do_convert_rgb": True, "size": {"height": side, "width": side}}


HUGGING_FACE = WeightFormat(
  words="a folder of Hugging Face",
  recognises=lambda path: (path / CONFIG).is_file(),
  load=_load,
  save=_save,
  card=_card,
)
