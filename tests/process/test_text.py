"""Tables of aligned columns."""

from vit_jax.process.text import aligned


def test_columns_are_as_wide_as_their_widest_cell():
  rows = [["name", "n", "note"], ["a", "10", "x"], [], ["long name", "9"]]
  assert aligned(rows, left=(0, 2)).splitlines() == [
    "name        n  note",
    "a          10  x",
    "",
    "long name   9",
  ]
  assert aligned([]) == ""
