"""Reads and checks config.json and preprocessor_config.json of a Hugging Face folder."""

import pathlib

from vit_jax.weights.card import MAX_EPSILON, read_json

CONFIG, PREPROCESSOR = "config.json", "preprocessor_config.json"
ARCHITECTURE, WITHOUT_HEAD = "ViTForImageClassification", "ViTModel"
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
SIZES = (
  "num_attention_heads",
  "num_hidden_layers",
  "hidden_size",
  "intermediate_size",
  "patch_size",
  "image_size",
)
# For each other key that changes what transformers computes: the values for which this project
# computes the same, and transformers' default for a missing key.
COMPUTED = {
  "model_type": (("vit",), "vit"),
  "hidden_act": ((*ACTIVATIONS["gelu"], *ACTIVATIONS["gelu_tanh"]), "gelu"),
  "num_channels": ((3,), 3),
  "qkv_bias": ((True,), True),
  "problem_type": ((*PROBLEM_TYPES.values(), None), None),
  "pruned_heads": (({}, None), None),
  "quantization_config": ((None,), None),
}
PROCESSORS = ("ViTImageProcessor", "ViTImageProcessorFast", "ViTImageProcessorPil")
DEFAULT_EPSILON = 1e-12  # transformers' default
LARGEST = 10**6  # upper bound of each size
SHOWN = 60  # characters of a foreign value in a message


def read(folder: pathlib.Path) -> dict:
  """Reads config.json of a model that this project can compute.

  Raises:
    ValueError: this project does not compute such a model; names the keys.
  """
  path = folder / CONFIG
  settings = read_json(path)
  architectures = settings.get("architectures") if isinstance(settings, dict) else None
  if architectures not in ([ARCHITECTURE], [WITHOUT_HEAD]):
    raise ValueError(f"{path} does not describe a {ARCHITECTURE} or a {WITHOUT_HEAD}.")
  good = lambda value: type(value) is int and 1 <= value <= LARGEST
  wrong = [key for key in SIZES if not good(settings.get(key))]
  if wrong:
    raise ValueError(f"{path}: {', '.join(wrong)} must be whole numbers from 1 to {LARGEST:,}.")
  for part, whole in (("num_attention_heads", "hidden_size"), ("patch_size", "image_size")):
    if settings[whole] % settings[part]:
      raise ValueError(f"{path}: {part} must divide {whole}.")
  others = differing(settings, COMPUTED)
  epsilon = settings.get("layer_norm_eps", DEFAULT_EPSILON)
  if type(epsilon) is not float or not 0 < epsilon <= MAX_EPSILON:
    others.append(
      f"layer_norm_eps is {repr(epsilon)[:SHOWN]} and must be above 0, at most {MAX_EPSILON}"
    )
  if others:
    raise ValueError(
      f"{path} describes a model that this project does not compute: {'; '.join(others)}."
    )
  return settings


def function(settings: dict) -> dict[str, str | float]:
  """The activation and norm_epsilon for a card, from the settings of `read`."""
  name = settings.get("hidden_act", COMPUTED["hidden_act"][1])
  (activation,) = (ours for ours, theirs in ACTIVATIONS.items() if name in theirs)
  epsilon = settings.get("layer_norm_eps", DEFAULT_EPSILON)
  return dict(activation=activation, norm_epsilon=epsilon)


def differing(found: dict, expected: dict) -> list[str]:
  """Describes the keys of `found` whose value is not an expected one.

  Args:
    found: {key: value}.
    expected: {key: (allowed values, default of a missing key)}.
  """
  return [
    f"{key} is {repr(found.get(key, default))[:SHOWN]} and must be {values[0]!r}"
    for key, (values, default) in expected.items()
    if found.get(key, default) not in values
  ]


def check_shapes(settings: dict, shapes: dict[str, tuple[int, ...]]):
  """Checks that the arrays are exactly those of transformers' model with these settings.

  Args:
    settings: config.json.
    shapes: {name in model.safetensors: shape}.

  Raises:
    ValueError: an array is missing, extra, or of another shape; names the first.
  """
  if settings["num_hidden_layers"] > len(shapes):  # first, because `described` takes that long
    raise ValueError(
      f"it holds {len(shapes)} arrays, and num_hidden_layers in {CONFIG} is "
      f"{settings['num_hidden_layers']:,}"
    )
  labels = (*shapes.get("classifier.bias", ()), 0)[0]
  for name, shape in described(settings, labels).items():
    if shapes.get(name) != shape:
      found = f"is {shapes[name]}" if name in shapes else "is missing"
      raise ValueError(f"{name} {found}; by {CONFIG} it must be {shape}")
  extra = shapes.keys() - described(settings, labels).keys()
  if extra:
    kind = settings["architectures"][0]
    raise ValueError(f"{min(extra)} is not part of the {kind} that {CONFIG} describes")


def described(settings: dict, labels: int) -> dict[str, tuple[int, ...]]:
  """The arrays of transformers' model, its head, if any, with `labels` classes: {name: shape}."""
  width, hidden, patch = (settings[k] for k in ("hidden_size", "intermediate_size", "patch_size"))
  tokens = (settings["image_size"] // patch) ** 2 + 1
  shapes = {
    "vit.embeddings.cls_token": (1, 1, width),
    "vit.embeddings.position_embeddings": (1, tokens, width),
    **_dense("vit.embeddings.patch_embeddings.projection", (width, 3, patch, patch)),
    **_dense("vit.layernorm", (width,)),
  }
  if settings["architectures"] == [ARCHITECTURE]:
    shapes |= _dense("classifier", (labels, width))
  for i in range(settings["num_hidden_layers"]):
    block = f"vit.encoder.layer.{i}"
    for name in ("attention.query", "attention.key", "attention.value", "output.dense"):
      shapes |= _dense(f"{block}.attention.{name}", (width, width))
    shapes |= _dense(f"{block}.intermediate.dense", (hidden, width))
    shapes |= _dense(f"{block}.output.dense", (width, hidden))
    shapes |= _dense(f"{block}.layernorm_before", (width,))
    shapes |= _dense(f"{block}.layernorm_after", (width,))
  return shapes


def _dense(name, kernel):
  return {f"{name}.weight": kernel, f"{name}.bias": kernel[:1]}


def check_preprocessor(path: pathlib.Path, image_size: int):
  """Checks that the folder's images are prepared as in this project.

  Raises:
    ValueError: they are prepared in another way; names the keys.
  """
  found = read_json(path)
  if not isinstance(found, dict):
    raise ValueError(f"{path} does not describe how images are prepared.")
  half, square = [0.5] * 3, {"height": image_size, "width": image_size}
  kind = found.get("image_processor_type", found.get("feature_extractor_type"))
  expected = dict(
    image_processor_type=((*PROCESSORS, "ViTFeatureExtractor", None), kind),
    image_mean=((half,), half),
    image_std=((half,), half),
    size=((square, image_size), {"height": 224, "width": 224}),
    resample=((2,), 2),
    do_resize=((True,), True),
    do_rescale=((True,), True),
    rescale_factor=((1 / 255,), 1 / 255),
    do_normalize=((True,), True),
    do_center_crop=((False, None), None),
    do_pad=((False, None), None),
  )
  others = differing(found, expected)
  if others:
    differences = "; ".join(others)
    raise ValueError(f"{path} prepares images in another way than this project: {differences}.")
