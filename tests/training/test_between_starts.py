"""What has changed between two starts of one run: its images, variables and metrics."""

import dataclasses
import json

import pytest

from tests.data import pictures
from tests.tiny_run import CONFIG
from vit_jax import config as c
from vit_jax import launch
from vit_jax.devices.hosts import Hosts
from vit_jax.process.console import StopRequest

VARIABLE = ("TPU_NAME", "mine")


def train(folder, images, steps, **data):
  """Trains to this step, from settings and files alone, as the command does."""
  config = dataclasses.replace(
    CONFIG,
    batch_size=8,
    duration=c.Duration(steps=steps),
    schedule=dataclasses.replace(CONFIG.schedule, decay="constant"),
    model=dataclasses.replace(CONFIG.model, num_classes=2),
    data=dataclasses.replace(CONFIG.data, train=c.Dataset(f"folder:{images}"), **data),
    evaluate={},
  )
  assert launch.launch(config, folder, StopRequest(), mode="train", hosts=Hosts())


def exchange_classes(images):
  (images / "a").rename(images / "other")
  (images / "b").rename(images / "a")
  (images / "other").rename(images / "b")


@pytest.mark.usefixtures("one_device")
def test_a_start_tells_what_has_changed_since_the_one_before(tmp_path, capsys, monkeypatch):
  images, folder = tmp_path / "photos", tmp_path / "run"
  for label in "ab":
    (images / label).mkdir(parents=True)
    for i in range(4):
      photo = pictures.picture(seed=ord(label) + i)
      (images / label / f"{i}.png").write_bytes(pictures.saved(photo, "PNG"))
  train(folder, images, 2)
  exchange_classes(images)
  said = r"config\.data\.train.*a newer version may choose others.*config\.data\.changed=continue"
  with pytest.raises(c.ConfigError, match=said):
    train(folder, images, 3)
  (images / "b").rename(images / "z")
  for changed in ("refuse", "continue"):
    with pytest.raises(c.ConfigError, match=r"'b' there and 'z' in .*, which begins with a new"):
      train(folder, images, 3, changed=changed)
  (images / "z").rename(images / "b")
  metrics = folder / "metrics.jsonl"
  first, _ = metrics.read_text().splitlines(keepends=True)
  metrics.write_text(first)
  monkeypatch.setenv(*VARIABLE)
  capsys.readouterr()
  train(folder, images, 3, changed="continue")
  said = capsys.readouterr().out
  assert f"{metrics} has 1 line(s) up to step 2, where the checkpoint was saved with 2" in said
  starts = map(json.loads, (folder / "starts.jsonl").read_text().splitlines())
  before, after = (start["variables"].items() for start in starts)
  assert after - before == {VARIABLE}
