"""Cells that a spreadsheet would run are text, and read back as they were."""

import csv
import io

import hypothesis
import pytest
from hypothesis import strategies as st

from vit_jax.process import text


def in_a_spreadsheet(*row) -> list[str]:
  return next(csv.reader(io.StringIO(text.csv_line(row), newline="")))


@pytest.mark.parametrize(
  "name", ["=cmd|' /C calc'!A0", "+1+cmd", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "'=1", "-a", "＝1"]
)
def test_a_formula_is_text(name):
  assert in_a_spreadsheet(name) == [f"'{name}"]
  assert list(text.csv_rows(text.csv_line([name, 1]))) == [[name, "1"]]


def test_numbers_and_other_texts_stay_as_they_are():
  row = (-1, -0.5, float("-inf"), "-1", "-1.5e-07", "+3", "-inf", "a=b", "it's", "'", "-", "")
  assert in_a_spreadsheet(*row) == [*map(str, row)]


@hypothesis.given(st.lists(st.text("'=+-@\t\r\n,\"a1.e", max_size=6), min_size=1))
def test_every_row_reads_back(row):
  hypothesis.assume(row != [""])
  assert list(text.csv_rows(text.csv_line(row))) == [row]
  assert not any(cell[:1] in ("=", "@", "\t", "\r") for cell in in_a_spreadsheet(*row))
