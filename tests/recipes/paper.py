"""The recipes, and the tables of the paper for comparison."""

import csv
import pathlib
import runpy

from vit_jax import recipes

CONFIGS = pathlib.Path(__file__).parents[2] / "configs"
PAPER = pathlib.Path(__file__).parents[1] / "paper"


def load(name, argument=""):
  return recipes.load(f"{CONFIGS / name}.py{argument and ':'}{argument}")


def docstring(name):
  return runpy.run_path(str(CONFIGS / f"{name}.py"))["__doc__"]


def table(name):
  return list(csv.DictReader((PAPER / name).read_text().splitlines()))
