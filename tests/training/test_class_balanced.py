"""Runs that draw every class equally often: refusals, the message, and a run that goes on."""

import cv2
import jax
import numpy as np
import pytest

from tests import resolved
from tests.learning.hidden_channel import Hidden
from vit_jax import config as c
from vit_jax.data.sources import SourceError
from vit_jax.extras.report import messages
from vit_jax.training import run as runs
from vit_jax.training import start
from vit_jax.training.steps import ImageCount

MODEL = c.Model(name="ViT-Ti/4", depth=1, width=16, mlp_dim=16, heads=2, num_classes=3)
SIZES = {"cat": 15, "dog": 4, "eel": 1}
WHOLE = dict(crop_area=(1.0, 1.0), crop_aspect=(1.0, 1.0))  # pixels tell the image


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  """Images of one grey level each, ten times the class and one more for each image."""
  root = tmp_path_factory.mktemp("unbalanced")
  for number, (name, size) in enumerate(SIZES.items()):
    (root / name).mkdir()
    for index in range(size):
      pixels = np.full((8, 8, 3), 20 * number + index, np.uint8)
      cv2.imwrite(str(root / name / f"{index:02}.png"), pixels)
  return f"folder:{root}"


def run(*, batch_size=4, fields=None, **data):
  data = c.Data(image_size=8, threads=1, **dict(class_balanced=True) | WHOLE | data)
  settings = dict(model=MODEL, batch_size=batch_size, duration=c.Duration(epochs=6))
  return resolved.config(data=data, **settings | (fields or {}))


def grey(config, images, *, start=0):
  """The grey levels of this many images that a run trains on, after `start` images."""
  made = resolved.run(config, jax.devices()[:1], taken=ImageCount(images=start))
  reader = made.reader.training(
    made.data.train, parts=made.data.parts, seed=config.seed, start=start
  )
  batches = [next(reader) for _ in range(images // config.batch_size)]
  reader.close()
  first = made.reader.first_training(
    made.data.train, parts=made.data.parts, seed=config.seed, count=config.batch_size
  )
  assert start or [item.labels[0] for item in first] == batches[0]["labels"].tolist()
  return np.concatenate([batch["image"][:, 0, 0, 0] for batch in batches])


def test_classes_come_equally_often_and_a_run_goes_on_with_the_same_images(folder):
  """Also with another batch size."""
  whole = grey(run(train=c.Dataset(folder)), 1100)
  counts = np.bincount(whole[:1002])  # a block
  by_class = [counts[:15], counts[20:24], counts[40:]]
  assert [one.sum() for one in by_class] == [334, 334, 334]
  assert all(np.ptp(one) <= 1 for one in by_class)
  later = grey(run(train=c.Dataset(folder), batch_size=10), 60, start=980)
  np.testing.assert_array_equal(later, whole[980:1040])


def test_the_start_tells_how_often_images_of_the_rarest_class_come(folder):
  made = resolved.run(run(train=c.Dataset(folder)), jax.devices()[:1])
  assert made.steps.total == 6 * 20 / 4  # an epoch has as many steps as without
  assert messages.class_balance(made) == (
    "Every class is drawn equally often: config.data.train: 3 classes from 'eel' (1 image(s), each "
    "seen 40.00 times) to 'cat' (15 image(s), each seen 2.67 times)\n"
  )
  later = messages.class_balance(made.after(ImageCount(15, 60), ()))
  assert (
    "'eel' (1 image(s), each seen 20.00 more times) to 'cat' (15 image(s), each seen 1.33" in later
  )
  mix = {"a": c.Weighted(folder, weight=3.0), "b": c.Weighted(folder, "[80%:]")}
  told = messages.class_balance(resolved.run(run(mix=mix), jax.devices()[:1]))
  seen = 6 * (20 + 4) * 3 / 4 / 3
  assert f"config.data.mix.a: 3 classes from 'eel' (1 image(s), each seen {seen:.2f} times)" in told
  assert "config.data.mix.b: 2 classes from 'dog' (1 image(s)" in told
  plain = run(train=c.Dataset(folder), class_balanced=False)
  assert messages.class_balance(resolved.run(plain, jax.devices()[:1])) == ""


def test_a_run_that_goes_on_otherwise_says_so(folder):
  before = c.to_dict(run(train=c.Dataset(folder), class_balanced=False))
  changed = start.changed(before, run(train=c.Dataset(folder)))
  assert changed == ["config.data.class_balanced: False -> True"]


def test_images_without_one_label_each_are_refused(folder, tmp_path):
  table = tmp_path / "list.csv"
  table.write_text("path,label\n0.png,cat|dog\n1.png,eel\n")
  for name in ("0.png", "1.png"):
    (tmp_path / name).touch()
  several = run(train=c.Dataset(f"csv:{table}"), batch_size=2)
  bare = run(train=c.Dataset(folder, label_key=""), fields=dict(objective=Hidden()))
  for config, have in ((several, "any number of"), (bare, "no")):
    message = rf"class_balanced=True needs .* config\.data\.train \(.*have {have} labels; leave"
    with pytest.raises(c.ConfigError, match=message):
      runs.open_data(config)


def test_labels_that_cannot_be_read_are_told_with_the_source(folder, monkeypatch):
  config = run(train=c.Dataset(folder))
  opened = runs.open_training(config)

  def gone(_):
    raise OSError("the disk is gone")

  opened[0].source.labels = gone
  with pytest.raises(SourceError, match=r"config\.data\.train \(.*labels cannot be read: the disk"):
    runs.open_data(config, opened=opened)
