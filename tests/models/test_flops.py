"""Analytic cost against XLA's own count and Table 6 of the paper, and peaks."""

import csv
import pathlib

import jax
import jax.numpy as jnp
import pytest

from vit_jax import models
from vit_jax.devices.chips import chip
from vit_jax.models import flops

TABLE6 = pathlib.Path(__file__).parents[1] / "paper" / "table6_scaling.csv"
SMALL = dict(depth=3, width=384, mlp_dim=1536, heads=6)


@pytest.mark.parametrize(
  ("name", "options"),
  [
    ("ViT-S/16", dict(representation_layer=True)),
    ("ViT-S/16", dict(SMALL, pool="gap", positions="relative")),
    ("ViT-S/16", dict(SMALL, pool="map", depth=1)),  # the pooling is a seventh of it
    ("R50x1", {}),
    ("R50x1+ViT-B/16", SMALL),
    ("R+ViT-Ti/16", {}),
    ("Axial-ViT-B/16", SMALL),
    ("Axial-R50", {}),
  ],
)
def test_multiply_adds_against_the_compiler(name, options):
  model = models.create(name, **options)
  images = jax.ShapeDtypeStruct((1, 224, 192, 3), jnp.float32)
  params = jax.eval_shape(
    lambda: model.init(jax.random.key(0), jnp.zeros(images.shape), train=False)
  )
  forward = jax.jit(lambda p, x: model.apply(p, x, train=False)[0])
  counted = forward.lower(params, images).compile().cost_analysis()["flops"]
  assert 2 * flops.forward_macs(model, 224, 192) == pytest.approx(counted, rel=0.03)


@pytest.mark.parametrize(
  ("name", "side", "count"),
  [
    ("ViT-B/16", 224, 86_567_656),
    ("ViT-B/16", 384, 86_567_656 + (24**2 - 14**2) * 768),
    ("ViT-L/32", 224, 306_535_400),
    ("R50x1+ViT-B/16", 224, 98_659_112),
    ("R50x1", 224, 25_549_352),
    ("R50x1", 448, 25_549_352),
  ],
)
def test_parameters_of_the_published_models(name, side, count):
  assert sum(flops.parameters(models.create(name), side, side).values()) == count


@pytest.mark.parametrize(
  ("name", "millions"), [("R101x1", 44.54), ("R152x2", 236.34), ("R50x3", 217.32)]
)
def test_parameters_of_the_published_resnets(name, millions):
  counts = flops.parameters(models.create(name), 224, 224)
  assert round(sum(counts.values()) / 1e6, 2) == millions


@pytest.mark.parametrize("row", list(csv.DictReader(TABLE6.read_text().splitlines())), ids=str)
def test_exaflops_of_table_6(row):
  """The paper's own count: JFT's head, and before it a representation layer in ViTs and hybrids."""
  resnet = row["model"].startswith("R") and "ViT" not in row["model"]
  options = {} if resnet else dict(representation_layer=True)
  model = models.create(row["model"], num_classes=18_291, **options)
  epochs, printed = float(row["epochs"]), float(row["exaFLOPs"])
  exaflops = flops.training_flops(flops.forward_macs(model, 224, 224)) * 303e6 * epochs / 1e18
  assert exaflops == pytest.approx(printed, rel=0.05 if resnet else 0.03)


def test_training_costs_three_forward_passes():
  assert flops.training_flops(10) == 60


def test_the_images_that_chips_take_in_the_documents():
  """docs/input.md: peak x MFU / FLOPs of an image, for every kind of chip."""
  text = (pathlib.Path(__file__).parents[2] / "docs" / "input.md").read_text()
  lines = [line for line in text.splitlines() if line.startswith(("| TPU", "| NVIDIA"))]
  rows = [line.strip("| ").split("|") for line in lines]
  model = models.create("ViT-S/16", num_classes=1000)
  image = flops.training_flops(flops.forward_macs(model, 224, 224))
  for kind, images, *_ in rows:
    expected = 0.4 * chip(kind.strip().removesuffix(" (one of two)")).peak_flops / image
    assert float(images.replace(",", "")) == pytest.approx(expected, rel=0.01), kind
  assert len(rows) == 7
