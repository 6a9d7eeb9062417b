"""A model card for the Hugging Face Hub: README.md, with a header in YAML."""

from vit_jax.config import ConfigError
from vit_jax.data import datasets
from vit_jax.evaluation import catalogue, results
from vit_jax.inference.model import LoadedModel
from vit_jax.storage import checkpoint, files
from vit_jax.storage.paths import Path, path_of
from vit_jax.weights import card as cards

NAME = "README.md"
MARK = "---\n"  # before and after the header
MOST = 2**20  # bytes
TEXT = """\
---
library_name: {library}
pipeline_tag: {task}
tags:
- vit_jax
# license: write yours here (https://huggingface.co/docs/hub/repositories-licenses)
---

# {name}

```text
{model}
```

- Images: {preparation}; {pixels}, which a program (.stablehlo, .onnx) computes itself
- Images that it, or a teacher, was trained on: {data}
- Evaluated: {metrics}
"""


def place(output: Path, suffix: str) -> Path:
  """Where the card of an export to `output` is written, which is a folder if `suffix` is ""."""
  folder = output.parent if suffix else output
  return folder / NAME


def check(output: Path, suffix: str):
  """Checks that no file is replaced; arguments as for `place`.

  Raises:
    ConfigError: there is a README.md already, which is not of an export to the same folder.
  """
  path = place(output, suffix)
  if files.exists(path) and (suffix or _text(path).startswith(MARK)):
    raise ConfigError(f"--model-card does not replace {path}; rename it, or leave the flag out.")


def write(model: LoadedModel, output: Path, suffix: str) -> str:
  """Writes the card of an export; returns a line that says so.

  The notes that a format has written to the same file follow the card.

  Args:
    model: the model.
    output, suffix: as for `place`.
  """
  path = place(output, suffix)
  notes = f"{cards.DEEP}\n"
  if files.exists(path):
    notes = _text(path)
  library = "vit_jax" if suffix else "transformers"
  text = _card(model, output.name.removesuffix(suffix), library)
  files.write_text(path, f"{text}\n{notes}")
  return f"{path}: a model card for the Hugging Face Hub; add a license, and what it is for."


def _text(path: Path) -> str:
  return files.read_bytes(path, most=MOST).decode(errors="replace")


def _card(model: LoadedModel, name: str, library: str) -> str:
  known = model.card
  task = "image-classification" if model.classifies else "image-feature-extraction"
  trained = map(datasets.in_words, [trained.dataset for trained in known.trained_on])
  return TEXT.format(
    library=library,
    task=task,
    name=name,
    model="\n".join(repr(model).splitlines()[:-1]),  # without the path of the source
    preparation=cards.preparation_in_words(known),
    pixels=_pixels(known),
    data="; ".join(trained) or "unknown",
    metrics=_metrics(model) or "unknown",
  )


def _pixels(known: cards.Card) -> str:
  """What the network computes with."""
  pixels = cards.values_of(known)["pixels"]
  if pixels == cards.PIXELS:
    return pixels
  return f"channels: {known.channels}, {pixels}"


def _metrics(model: LoadedModel) -> str:
  """The metrics of the run at the exported step, of the parameters that were exported; or ""."""
  step = model.read.step
  if not step:
    return ""
  folder, _ = checkpoint.named_by(path_of(model.source))
  for line in results.evaluations_in(folder):
    if line["step"] == step and bool(line.get(catalogue.AVERAGE)) == model.card.average:
      return f"{catalogue.in_words(line)}, after {step:,} steps"
  return ""
