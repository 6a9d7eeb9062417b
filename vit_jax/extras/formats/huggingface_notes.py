"""The README.md of exported folders: which images transformers prepares otherwise than vit_jax."""

import pathlib
import re

from vit_jax.extras.formats.huggingface_images import FILTERS
from vit_jax.storage.files import write_text
from vit_jax.weights.card import DEEP, Card

FILE = "README.md"
README = f"""# Images for this model

preprocessor_config.json says how images are prepared. vit_jax exported this model. In [CASES] cases
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
CENTRE = """\
- Images whose centre is cut out: transformers rounds the margin before it down, and vit_jax, as
  torchvision and timm, to even. For a quarter of the sizes of images, vit_jax's centre lies one
  pixel further.
"""
SQUARE = "image = cv2.resize(image, ([SIDE], [SIDE]))"
SMALLER_SIDE = """height, width = image.shape[:2]
      scale = [RESIZE] / min(height, width)
      image = cv2.resize(image, (round(width * scale), round(height * scale)))"""


def write(folder: pathlib.Path, card: Card):
  """Writes the notes, unless somebody changed those of an earlier export."""
  if _unchanged(folder / FILE):
    write_text(folder / FILE, _notes_on_images(card))


def _notes_on_images(card: Card) -> str:
  """The text for users who prepare images for the model."""
  text = README
  if card.resampling == Card.resampling:
    text += LARGE
  elif card.resize and card.resampling.startswith("torchvision_"):
    text += CENTRE
  text = text.replace("[CASES]", "two" if text == README else "three")
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
  filters = (Card.resampling, f"pillow_{FILTERS[0]}", f"torchvision_{FILTERS[0]}")
  cards = [Card(0, resize=resize, resampling=name) for resize in (0, 1) for name in filters]
  written = [_without_sizes(_notes_on_images(card)) for card in cards]
  written += [text.replace("vit_jax exported", "vit_jax trained") for text in written]  # by 0.2.0
  return _without_sizes(path.read_text(encoding="utf-8", errors="replace")) in written


def _without_sizes(text: str) -> str:
  return re.sub(r"\d+", "0", text)
