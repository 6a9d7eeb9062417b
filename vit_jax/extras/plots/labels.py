"""Text in pictures, drawn with the fonts of this machine."""

import functools
import re
import textwrap
import unicodedata

from vit_jax.process.text import one_line

MAX_LENGTH = 24  # characters
LETTERS = 14  # of a title at 9 points, in an inch
LINE = 0.18  # height of a line of a title, inches
# Matplotlib has the first one. The others have what it lacks: East Asian scripts and emoji.
FONTS = (
  *("DejaVu Sans", "Noto Sans CJK JP", "Noto Sans CJK SC", "Noto Sans JP", "Noto Sans SC"),
  *("WenQuanYi Zen Hei", "Droid Sans Fallback", "Hiragino Sans", "PingFang SC", "Yu Gothic"),
  *("Microsoft YaHei", "Malgun Gothic", "Noto Emoji", "Noto Sans Symbols2", "Symbola"),
  *("Segoe UI Emoji", "Unifont", "Unifont Upper", "Arial Unicode MS"),
)

SELECTORS = "\ufe0e\ufe0f"  # choose between the forms of an emoji


def metric(key: str) -> str:
  """The key of a metric in words: "test/top1" is "test top-1"."""
  evaluation, _, name = key.rpartition("/")
  name = re.sub(r"top(\d+)", r"top-\1", re.sub(r"^(\d+)(shot|nn)", r"\1-\2", name))
  return f"{evaluation} {name.replace('_', ' ')}".strip()


def label(name: str) -> str:
  """A name as text in a picture: short, on one line, without formulas and unknown characters."""
  return _no_formula(drawable(_visible(name)[:MAX_LENGTH]))


def caption(text: str, width: int) -> str:
  """As `label`, but the whole text, in lines of at most `width` characters."""
  lines = textwrap.wrap(drawable(_visible(text)), width)
  return "\n".join(map(_no_formula, lines))


def _visible(text: str) -> str:
  """The text on one line, without selectors and characters of category Cf, such as joiners."""
  return one_line(
    "".join(x for x in text if unicodedata.category(x) != "Cf" and x not in SELECTORS)
  )


def _no_formula(text: str) -> str:
  """The text with escaped dollar signs, between which Matplotlib would typeset a formula."""
  return text.replace("$", r"\$")


def drawable(text: str) -> str:
  """The text; characters that no font here has become words: [athletic shoe], [U+9774]."""
  known = _characters(fonts())
  drawn = []
  for character in text:
    if ord(character) in known or character.isspace():
      drawn.append(character)
    else:
      drawn.append(_in_words(character))
  return "".join(drawn)


def _in_words(character: str) -> str:
  """The name of a symbol, or the number of another character, in brackets."""
  name = unicodedata.name(character, "")
  if name and unicodedata.category(character) in ("So", "Sk"):
    return f"[{name.lower()}]"
  return f"[U+{ord(character):04X}]"


@functools.cache
def fonts() -> tuple[str, ...]:
  """The installed families of `FONTS`; Matplotlib looks for each character in all of them."""
  from matplotlib import font_manager  # slow to import

  installed = {font.name for font in font_manager.fontManager.ttflist}
  return tuple(name for name in FONTS if name in installed)


@functools.cache
def _characters(families: tuple[str, ...]) -> frozenset[int]:
  from matplotlib import font_manager

  paths = [font_manager.findfont(name) for name in families]
  return frozenset().union(*(font_manager.get_font(path).get_charmap() for path in paths))
