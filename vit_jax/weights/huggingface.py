"""Reads and writes weights as a folder for Hugging Face's ViTForImageClassification.

Weights without a head are a ViTModel; a ViTModel's pooler is left out when it is read.
"""

import json
import logging
import pathlib

from vit_jax.data import history
from vit_jax.models.recognition import module_of
from vit_jax.storage.files import write_text
from vit_jax.storage.tree import flatten, nest
from vit_jax.weights import arrays, huggingface_settings, safetensors
from vit_jax.weights.card import DEEP, REPRESENTATIONS, Card
from vit_jax.weights.huggingface_settings import (
  ARCHITECTURE,
  CONFIG,
  PREPROCESSOR,
  PROBLEM_TYPES,
  WITHOUT_HEAD,
)
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

WEIGHTS = "model.safetensors"
_BLOCK, _THEIRS = "Transformer/encoderblock_{0}", "vit.encoder.layer.{0}"
_ATTENTION = f"{_BLOCK}/MultiHeadDotProductAttention_1"
NAMES = Table(
  ("cls", "vit.embeddings.cls_token", SAME),
  ("Transformer/posembed_input/pos_embedding", "vit.embeddings.position_embeddings", SAME),
  *layer("embedding", "vit.embeddings.patch_embeddings.projection", CONVOLUTION),
  *norm(f"{_BLOCK}/LayerNorm_0", f"{_THEIRS}.layernorm_before"),
  *to_heads(f"{_ATTENTION}/query", f"{_THEIRS}.attention.attention.query"),
  *to_heads(f"{_ATTENTION}/key", f"{_THEIRS}.attention.attention.key"),
  *to_heads(f"{_ATTENTION}/value", f"{_THEIRS}.attention.attention.value"),
  *layer(f"{_ATTENTION}/out", f"{_THEIRS}.attention.output.dense", FROM_HEADS),
  *norm(f"{_BLOCK}/LayerNorm_2", f"{_THEIRS}.layernorm_after"),
  *layer(f"{_BLOCK}/MlpBlock_3/Dense_0", f"{_THEIRS}.intermediate.dense", DENSE),
  *layer(f"{_BLOCK}/MlpBlock_3/Dense_1", f"{_THEIRS}.output.dense", DENSE),
  *norm("Transformer/encoder_norm", "vit.layernorm"),
  *layer("head", "classifier", DENSE),
)
_ALONE = ("embeddings.", "encoder.", "layernorm.", "pooler.")  # a ViTModel that was saved by itself
NOTES = "README.md"
_log = logging.getLogger(__name__)
REPRESENTATION, AVERAGE = "representation", "average"  # our own keys of config.json
TRAINED_ON = "vit_jax_trained_on"  # and another one
_NOTES = f"""# Images for this model

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


def save(folder: pathlib.Path, params: dict, card: Card):
  """Writes weights, config.json with the classes, preprocessor_config.json and a README.md.

  Args:
    folder: is made if it does not exist.
    params: our tree, blocks unstacked.
    card: says how images are prepared, and names the classes.

  Raises:
    ValueError: the format cannot express the model, or the folder holds something else.
  """
  check_expressible(params, card)
  if (folder / CONFIG).exists():
    huggingface_settings.read(folder)  # raises for a folder of another kind: do not replace it
  settings = _config(params, card)
  flat = NAMES.theirs(flatten(params))
  huggingface_settings.check_shapes(settings, {name: x.shape for name, x in flat.items()})
  folder.mkdir(parents=True, exist_ok=True)
  safetensors.save_flat(folder / WEIGHTS, flat)
  for name, content in ((CONFIG, settings), (PREPROCESSOR, _preprocessor(card))):
    write_text(folder / name, json.dumps(content, indent=2) + "\n")
  if not (folder / NOTES).exists():  # the user may have written it
    write_text(folder / NOTES, _NOTES.replace("[SIDE]", str(card.image_size)))


def load(folder: pathlib.Path) -> dict:
  """Reads a tree of NumPy arrays.

  Raises:
    ValueError: the folder describes neither a ViTForImageClassification nor a ViTModel, or its
      arrays do not match the description.
  """
  settings = huggingface_settings.read(folder)
  if not (folder / WEIGHTS).is_file():
    raise ValueError(
      f"{folder} has no {WEIGHTS} (weights in several files or as pickles are not read); save the "
      "model with save_pretrained(..., safe_serialization=True, max_shard_size='100GB')."
    )
  flat = _within_vit(safetensors.load_flat(folder / WEIGHTS), settings)
  shapes = {name: array.shape for name, array in flat.items()}
  with arrays.reading(folder / WEIGHTS, "Hugging Face's"):
    huggingface_settings.check_shapes(settings, shapes)
  return nest(NAMES.ours(flat, settings["num_attention_heads"]))


def read_card(folder: pathlib.Path) -> Card:
  """Reads the card: what the folder says about its model, images and classes.

  Raises:
    ValueError: config.json or preprocessor_config.json asks for something that this project does
      not compute.
  """
  settings = huggingface_settings.read(folder)
  classes = settings.get("id2label")
  if classes is None:  # transformers leaves out its own names, which are of two classes
    two = {"0": "LABEL_0", "1": "LABEL_1"}
    classes = two if settings["architectures"] == [ARCHITECTURE] else {}
  if not isinstance(classes, dict) or set(classes) != {str(i) for i in range(len(classes))}:
    raise ValueError(f"{folder / CONFIG}: id2label must name the classes 0, 1, 2, ...")
  names = tuple(str(classes[str(i)]) for i in range(len(classes)))
  if (folder / PREPROCESSOR).is_file():
    huggingface_settings.check_preprocessor(folder / PREPROCESSOR, settings["image_size"])
  loss = "sigmoid" if settings.get("problem_type") == PROBLEM_TYPES["sigmoid"] else "softmax"
  representation = settings.get(REPRESENTATION, REPRESENTATIONS[0])
  if representation not in REPRESENTATIONS:
    wanted = " or ".join(REPRESENTATIONS)
    raise ValueError(f"{folder / CONFIG}: {REPRESENTATION} must be {wanted}.")
  try:
    trained_on = history.read(settings.get(TRAINED_ON, []))
  except ValueError as error:
    raise ValueError(f"{folder / CONFIG}: {error}") from error
  return Card(
    image_size=settings["image_size"],
    class_names=names,
    loss=loss,
    representation=representation,
    trained_on=trained_on,
    average=settings.get(AVERAGE) is True,
    **huggingface_settings.function(settings),
  )


def check_expressible(params: dict, card: Card):
  """Checks that ViTForImageClassification computes the same as this model.

  Raises:
    ValueError: it does not; names the first part that it cannot express.
  """
  module = module_of(params)
  reasons = {
    "a ResNet": "resnet" in params,
    "a hybrid's ResNet": "conv_root" in params,
    "a representation layer (pre_logits)": "pre_logits" in params,
    "a model without class token (pool='gap' or 'map')": "cls" not in params,
    "position embeddings other than 1-D at the stem": (
      "resnet" not in params and (module.positions, module.position_place) != ("1d", "stem")
    ),
    "a centre cut out of a larger resized image (config.data.evaluate_resize)": bool(card.resize),
  }
  for what, here in reasons.items():
    if here:
      raise ValueError(f"Hugging Face's ViTForImageClassification has no place for {what}.")


def _within_vit(flat, settings):
  """The arrays of a ViTModel under the names that they have in a model with a head.

  The pooler, which belongs to no image's features, is left out.
  """
  if settings["architectures"] != [WITHOUT_HEAD]:
    return flat
  named = {f"vit.{name}" if name.startswith(_ALONE) else name: x for name, x in flat.items()}
  pooler = sorted(name for name in named if name.startswith("vit.pooler."))
  if pooler:
    _log.warning("Left out, because models of this project have no pooler: %s.", ", ".join(pooler))
  return {name: x for name, x in named.items() if name not in pooler}


def _config(params, card) -> dict:
  module = module_of(params)
  classes = module.num_classes if "head" in params else 0
  names = card.class_names or tuple(f"class {i}" for i in range(classes))
  return {
    "architectures": [ARCHITECTURE if "head" in params else WITHOUT_HEAD],
    "model_type": "vit",
    "hidden_size": module.width,
    "num_hidden_layers": module.depth,
    "num_attention_heads": module.heads,
    "intermediate_size": module.mlp_dim,
    "hidden_act": huggingface_settings.ACTIVATIONS[card.activation][0],
    "layer_norm_eps": card.norm_epsilon,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "image_size": card.image_size,
    "patch_size": module.patch,
    "num_channels": 3,
    "qkv_bias": True,
    "id2label": {str(i): name for i, name in enumerate(names)},
    "label2id": {name: i for i, name in enumerate(names)},
    # Tells transformers' pipelines whether to use softmax or sigmoid.
    "problem_type": PROBLEM_TYPES[card.loss],
    REPRESENTATION: card.representation,
    TRAINED_ON: history.written(card.trained_on),
    AVERAGE: card.average,
    "torch_dtype": "float32",
  }


def _preprocessor(card) -> dict:
  return {
    "image_processor_type": "ViTImageProcessor",
    "do_convert_rgb": True,
    "do_resize": True,
    "size": {"height": card.image_size, "width": card.image_size},
    "resample": 2,
    "do_rescale": True,
    "rescale_factor": 1 / 255,
    "do_normalize": True,
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
  }
