"""Tables of aligned columns, and texts on one line of a terminal or of a shell."""

import subprocess

import pytest

from vit_jax.process.text import aligned, command, printable, quoted

ODD = "a b; touch X\n'\x1b[31m\\n\u202e\r\t$(touch X)`"


def test_columns_are_as_wide_as_their_widest_cell():
  rows = [["name", "n", "note"], ["a", "10", "x"], [], ["long name", "9"]]
  assert aligned(rows, left=(0, 2)).splitlines() == [
    "name        n  note",
    "a          10  x",
    "",
    "long name   9",
  ]
  assert aligned([]) == ""


def test_a_cell_is_one_line():
  rows = [["a\nvit_jax: Done"], ["\x1b[2J\u202e"], ["Zürich 東京 😀"]]
  shown = ["a\\nvit_jax: Done", "\\x1b[2J\\u202e", "Zürich 東京 😀"]
  assert aligned(rows).splitlines() == shown
  assert printable("東京\n\t\x07", "\n\t") == "東京\n\t\\x07"


@pytest.mark.parametrize("word", [ODD, "", "plain", "it's", "--x=a b", "\n"])
def test_a_word_of_a_command_is_that_word_to_a_shell(word):
  assert quoted(word).isprintable()
  line = command(["printf", "%s", word])
  shell = subprocess.run(
    ["bash", "-c", line], capture_output=True, check=True, env={"LC_ALL": "C.UTF-8"}
  )
  assert shell.stdout.decode() == word
