"""Exact metrics for any batch size and any padding."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vit_jax import config as c
from vit_jax.config.fields import MAX_PIXELS, MAX_SIDE
from vit_jax.config.resolve import resolve
from vit_jax.evaluation import catalogue, classification, results
from vit_jax.evaluation.spec import NothingCounts
from vit_jax.process.errors import NotFinite

CLASSES = 9


class Lookup:
  """A model whose parameters are logits, chosen by each image's first two pixel values."""

  dtype = jnp.float32

  def apply(self, variables, images, *, train):
    assert not train
    pixels = jnp.round(images[:, 0, 0, :2] * 127.5 + 127.5).astype(int)
    return variables["params"][pixels[:, 0] * 256 + pixels[:, 1]], {}


def batches(labels, batch_size):
  for begin in range(0, len(labels), batch_size):
    index = np.arange(begin, begin + batch_size)
    mask = (index < len(labels)).astype(np.float32)
    index = np.minimum(index, len(labels) - 1)
    image = np.zeros((batch_size, 1, 1, 3), np.uint8)
    image[:, 0, 0, 0], image[:, 0, 0, 1] = index // 256, index % 256
    yield dict(image=image, labels=labels[index], mask=mask)


def reference(logits, target):
  order = np.argsort(-logits, axis=-1, kind="stable")
  hits = np.take_along_axis(target, order, -1) > 0
  share = target / np.maximum(target.sum(-1, keepdims=True), 1)
  log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
  return hits[:, 0].mean(), hits[:, :5].any(-1).mean(), -(share * log_p).sum(-1).mean()


@functools.cache
def step_of(kind):
  """The compiled step, whose parameters are a table of logits."""
  step = classification.make_step(Lookup(), c.Loss(kind=kind))
  return jax.jit(step, static_argnames=("classes", "ranked", "decided"))


def table_of(logits):
  """A table of one size for any number of images."""
  table = np.zeros((300, logits.shape[1]), np.float32)
  table[: len(logits)] = logits
  return table


def on_devices(count, batches):
  """The batches, each split over `count` devices."""
  mesh = jax.sharding.Mesh(jax.devices()[:count], "data")
  rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
  return (jax.device_put(batch, rows) for batch in batches)


def evaluate(logits, labels, batch_size, *, kind="softmax", devices=1, **options):
  step = functools.partial(step_of(kind), classes=options.pop("classes", None))
  placed = on_devices(devices, batches(labels, batch_size))
  return classification.evaluate(step, table_of(logits), placed, **options)


@settings(max_examples=20)
@given(st.integers(1, 300), st.sampled_from([1, 7, 64]), st.booleans(), st.integers(0, 100))
def test_every_image_counts_exactly_once(count, batch_size, multi_label, seed):
  rng = np.random.default_rng(seed)
  logits = rng.normal(size=(count, CLASSES))
  labels = rng.integers(0, CLASSES, count, np.int32)
  target = np.eye(CLASSES)[labels]
  if multi_label:
    target = np.maximum(target, rng.random((count, CLASSES)) < 0.2)
    labels = target.astype(np.uint8)
  top1, top5, loss = reference(logits, target)
  result = evaluate(logits, labels, batch_size)
  assert result["examples"] == count
  assert result["top1"] == pytest.approx(top1, abs=1e-12)
  assert result["top5"] == pytest.approx(top5, abs=1e-12)
  assert result["loss"] == pytest.approx(loss, rel=1e-5)


def test_of_equal_logits_lower_classes_come_first():
  logits = np.random.default_rng(2).integers(0, 3, (200, CLASSES)).astype(float)
  labels = np.arange(200, dtype=np.int32) % CLASSES
  top1, top5, _ = reference(logits, np.eye(CLASSES)[labels])
  result = evaluate(logits, labels, 64)
  assert (result["top1"], result["top5"]) == (pytest.approx(top1), pytest.approx(top5))


def test_without_a_true_class_among_those_that_a_prediction_may_be_it_is_wrong():
  logits = np.eye(CLASSES)[[1, 2]]
  result = evaluate(logits, np.array([8, 2], np.int32), 2, classes=(1, 2))
  assert (result["examples"], result["top1"]) == (2, 0.5)


@pytest.mark.parametrize("kind", ["softmax", "sigmoid"])
def test_calibration_error(kind):
  """Against bins filled one image at a time; every second bin is right, so none may be merged."""
  rng = np.random.default_rng(1)
  logits = rng.normal(0, 2, (300, CLASSES)) - (kind == "sigmoid") * 3
  exp = np.exp(logits)
  probabilities = exp / exp.sum(-1, keepdims=True) if kind == "softmax" else exp / (1 + exp)
  right = np.ceil(probabilities.max(-1) * 15) % 2 == 0
  labels = np.where(right, logits.argmax(-1), logits.argmin(-1)).astype(np.int32)
  bins = {}
  for row, label in zip(probabilities, labels, strict=True):
    bins.setdefault(int(np.ceil(row.max() * 15)), []).append((row.max(), row.argmax() == label))
  expected = sum(abs(sum(hit - p for p, hit in images)) for images in bins.values()) / 300
  assert evaluate(logits, labels, 64, kind=kind)["ece"] == pytest.approx(expected, abs=1e-6)


def test_images_without_a_right_class_do_not_count():
  """Like the 3,163 images of ReaL without a label; any of several right classes is a hit."""
  logits = np.eye(6)[[0, 1, 2, 3]]
  target = np.array([[1, 1, 0, 0, 0, 0], [0] * 6, [0, 1, 0, 0, 0, 0], [0] * 6], np.uint8)
  result = evaluate(logits, target, 3)
  assert (result["examples"], result["top1"], result["top5"]) == (2, 0.5, 1.0)
  assert "ece" not in result
  with pytest.raises(NothingCounts, match="none of its images has a label"):
    evaluate(logits, np.zeros_like(target), 3)


@pytest.mark.parametrize("devices", [1, 8])
def test_images_without_a_label_count_in_the_loss_of_a_sigmoid(devices):
  """As in training: it says of each class that it is not there. There is no hit or miss."""
  rng = np.random.default_rng(5)
  logits = rng.normal(0, 2, (45, CLASSES))
  target = rng.random((45, CLASSES)) < 0.2
  target[::4] = False
  labelled = target.any(axis=-1)
  assert 20 < labelled.sum() < 35
  top1, top5, _ = reference(logits[labelled], target[labelled].astype(float))
  p = 1 / (1 + np.exp(-logits))
  loss = -np.log(np.where(target, p, 1 - p)).sum(axis=-1).mean()
  result = evaluate(logits, target.astype(np.uint8), 16, kind="sigmoid", devices=devices)
  counts = dict(examples=45, labelled=int(labelled.sum()))
  assert result == pytest.approx(dict(loss=loss, top1=top1, top5=top5, **counts), rel=1e-5)
  said = classification.Classification.in_words("top1", result)
  assert said.endswith(f" on 45 images, {labelled.sum()} of them with a label")


def test_a_set_without_any_label_has_a_loss_alone():
  result = evaluate(np.zeros((3, 2)), np.zeros((3, 2), np.uint8), 8, kind="sigmoid")
  assert result == pytest.approx(dict(loss=2 * np.log(2), examples=3, labelled=0))
  metrics = {f"val/{name}": value for name, value in result.items()}
  assert catalogue.in_words(metrics) == "val: loss 1.3863 on 3 images, 0 of them with a label"


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_logits_that_are_not_finite_give_no_metrics(value):
  logits = np.zeros((10, CLASSES))
  logits[[1, 4, 9], 2] = value
  with pytest.raises(NotFinite, match=r"the logits of 3 of 10 images are not finite.*weights"):
    evaluate(logits, np.zeros(10, np.int32), 4)


@settings(max_examples=10)
@given(st.sets(st.integers(0, CLASSES - 1), min_size=1), st.booleans(), st.integers(0, 100))
def test_classes_that_do_not_occur_are_left_out(classes, multi_label, seed):
  rng = np.random.default_rng(seed)
  kept = np.array(sorted(classes))
  logits, labels = rng.normal(size=(50, CLASSES)), rng.choice(kept, 50).astype(np.int32)
  target = np.eye(CLASSES)[labels]
  top1, top5, loss = reference(logits[:, kept], target[:, kept])
  labels = target.astype(np.uint8) if multi_label else labels
  rows = results.Kept()
  result = evaluate(logits, labels, 16, classes=tuple(kept.tolist()), keep=rows.add)
  assert result["top1"] == pytest.approx(top1, abs=1e-12)
  assert result.get("top5", 1.0) == pytest.approx(top5, abs=1e-12)  # 1 of up to five classes
  assert ("top5" in result) == (len(kept) > 5)
  assert result["loss"] == pytest.approx(loss, rel=1e-5, abs=1e-6)
  exp = np.exp(logits[:, kept])
  kept_labels, predictions, probabilities = rows.joined()
  np.testing.assert_array_equal(kept_labels, labels)
  np.testing.assert_array_equal(predictions, kept[logits[:, kept].argmax(-1)])
  np.testing.assert_allclose(probabilities, exp.max(-1) / exp.sum(-1), rtol=1e-5)


@pytest.mark.parametrize(("classes", "told"), [(2, False), (5, False), (6, True)])
def test_top5_is_told_of_more_than_five_classes(classes, told):
  result = evaluate(np.eye(classes)[[1, 1]], np.array([0, 1], np.int32), 2)
  assert (result["top1"], result.get("top5")) == (0.5, 1.0 if told else None)
  said = classification.Classification.in_words("top1", result)
  assert said.startswith("top-1 50.00%, top-5 100.00%, loss" if told else "top-1 50.00%, loss")


@pytest.mark.parametrize(
  ("own", "side", "resize"),
  [(c.AUTO, 8, 10), (0, 8, 0), (1, 8, 8), (512 / 480, 480, 512), (512 / 480, 384, 410)],
)
def test_a_set_may_be_resized_in_its_own_way(own, side, resize):
  """`resize` is a ratio: ObjectNet's 512 to 480 holds at every image size."""
  sets = {"own": classification.Classification("digits", "test", resize=own)}
  images = c.Data(image_size=side, evaluate_resize=10, evaluate_squeeze=True)
  config = resolve(c.Config(data=images, evaluate=sets), {})
  squeeze = own == c.AUTO
  assert config.evaluate["own"].resizing(images) == dict(resize=resize, squeeze=squeeze)


@given(st.integers(1, MAX_SIDE), st.integers(0, MAX_PIXELS))
def test_a_set_without_a_size_of_its_own_has_that_of_all_to_the_pixel(side, resize):
  images = c.Data(image_size=side, evaluate_resize=resize)
  config = resolve(c.Config(data=images, evaluate={"all": classification.Classification()}), {})
  assert config.evaluate["all"].resizing(images)["resize"] == resize
