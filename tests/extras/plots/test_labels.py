"""Names in pictures: whatever their script, nothing is drawn as a box."""

import io
import warnings

import pytest
from matplotlib.figure import Figure

from vit_jax.extras.plots import labels


@pytest.mark.parametrize(
  ("name", "shown"),
  [
    ("Höse lang", "Höse lang"),
    ("Кот", "Кот"),
    ("\N{ATHLETIC SHOE} Schuh", "[athletic shoe] Schuh"),
    ("\N{WOMAN}\N{ZERO WIDTH JOINER}\N{ROCKET}", "[woman][rocket]"),
    ("\N{HEAVY BLACK HEART}\N{VARIATION SELECTOR-16}", "\N{HEAVY BLACK HEART}"),
    ("\u978b\u5b50", "[U+978B][U+5B50]"),
    ("$x^2$", r"\$x^2\$"),
    ("a\nb\x1b", r"a\nb\x1b"),
    ("a" * 100, "a" * 24),
  ],
)
def test_what_the_font_lacks_is_told_in_words(monkeypatch, name, shown):
  monkeypatch.setattr(labels, "fonts", lambda: ("DejaVu Sans",))
  assert labels.label(name) == shown
  figure = Figure()
  figure.text(0, 0, labels.label(name), family="DejaVu Sans")
  with warnings.catch_warnings():
    warnings.simplefilter("error")  # a missing glyph is a warning of Matplotlib
    figure.savefig(io.BytesIO())


def test_a_font_that_has_the_character_is_used(monkeypatch):
  monkeypatch.setattr(labels, "_characters", lambda families: frozenset([0x978B]))
  assert labels.label("\u978b") == "\u978b"


def test_a_caption_is_whole_and_in_lines():
  drawn = labels.caption("$a$ b\nc " * 20, 30)
  assert drawn.replace("\n", " ") == r"\$a\$ b\nc " * 19 + r"\$a\$ b\nc"
  assert max(len(line.replace(r"\$", "$")) for line in drawn.splitlines()) <= 30
