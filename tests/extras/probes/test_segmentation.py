"""The segmentation probe on made masks, and its scores against scikit-learn."""

import jax
import numpy as np
import pytest
from PIL import Image
from sklearn.metrics import confusion_matrix, jaccard_score

from vit_jax.config import ConfigError
from vit_jax.extras.probes import masks, segmentation
from vit_jax.process.progress import SILENT

GRID = 4, 4
SIDE = 16


def example(images, seed):
  """Features that tell the class of each patch, with noise, and masks."""
  rng = np.random.default_rng(seed)
  classes = rng.integers(0, 3, (images, *GRID))
  means = np.random.default_rng(9).standard_normal((3, 8))
  patches = means[classes] + 0.3 * rng.standard_normal((images, *GRID, 8))
  large = [np.uint8(np.kron(each, np.ones((6, 5)))) for each in classes]
  for mask in large:
    mask[0] = 255
  return np.float32(patches.reshape(images, 16, 8)), large


def test_a_linear_probe_learns_made_masks():
  patches, large = example(20, 0)
  options = dict(grid=GRID, size=(SIDE, SIDE), classes=3, seed=0)
  probe = segmentation.fit(patches, large, steps=120, **options)
  test, test_masks = example(10, 1)
  cells = segmentation.confusion(probe, test, test_masks, GRID)
  assert cells.sum() == sum((mask != 255).sum() for mask in test_masks)
  predictions = []
  for features, mask in zip(test, test_masks, strict=True):
    logits = features @ probe["kernel"] + probe["bias"]
    with jax.enable_x64():
      large = segmentation.enlarged(logits[None], GRID, mask.shape)
    predictions.append(np.asarray(large[0]).argmax(axis=-1)[mask != 255])
  labels = np.concatenate([mask[mask != 255] for mask in test_masks])
  predictions = np.concatenate(predictions)
  assert np.abs(cells - confusion_matrix(labels, predictions)).sum() <= 2e-3 * len(labels)
  found = segmentation.scores(cells)
  assert found["miou"] == pytest.approx(
    jaccard_score(labels, predictions, average="macro"), abs=1e-3
  )
  assert found["miou"] > 0.6


def test_running_statistics_after_a_step():
  rng = np.random.default_rng(0)
  x = rng.standard_normal((3, 16, 8)).astype(np.float32)
  state = segmentation.initial(8, 3, 0)
  schedule = segmentation.optimizer(10)
  moments = schedule.init(state["params"])
  large = np.zeros((3, SIDE, SIDE), np.uint8)
  state, _ = segmentation.step(schedule, GRID, state, moments, x, large)
  flat = np.float64(x.reshape(-1, 8))
  np.testing.assert_allclose(state["mean"], 0.1 * flat.mean(axis=0), atol=1e-6)
  np.testing.assert_allclose(state["var"], 0.9 + 0.1 * flat.var(axis=0, ddof=1), atol=1e-6)


def test_the_batch_norm_is_folded_into_the_convolution():
  rng = np.random.default_rng(0)
  state = segmentation.initial(8, 3, 0)
  state = jax.tree.map(lambda x: np.float32(x + rng.uniform(0.1, 0.5, x.shape)), state)
  x = rng.standard_normal((2, 5, 8)).astype(np.float32)
  probe = segmentation.folded(state)
  with_norm = segmentation.linear(state["params"], x, state["mean"], state["var"])
  np.testing.assert_allclose(x @ probe["kernel"] + probe["bias"], with_norm, atol=1e-5)


def test_classes_that_occur_nowhere_do_not_count():
  cells = np.array([[3, 1, 0], [0, 4, 0], [0, 0, 0]])
  found = segmentation.scores(cells)
  assert found == {"accuracy": 7 / 8, "miou": pytest.approx((3 / 4 + 4 / 5) / 2)}


def made(folder, mask, shape=(12, 10), mode="P"):
  for name in ("images", "masks"):
    (folder / name).mkdir(parents=True, exist_ok=True)
  for i in range(10):
    Image.fromarray(np.zeros((*shape, 3), np.uint8)).save(folder / "images" / f"{i}.jpg")
    image = Image.fromarray(mask)
    if mode == "P":
      image = image.convert("P")
      image.putdata(mask.ravel().tolist())
    image.save(folder / "masks" / f"{i}.png")


def test_masks_of_a_folder(tmp_path):
  mask = np.zeros((12, 10), np.uint8)
  mask[3:] = 2
  mask[0] = 255
  made(tmp_path / "a", mask)
  parts = masks.open_masked(str(tmp_path / "a"), SILENT)
  assert (len(parts.masks), len(parts.test_masks), parts.classes) == (9, 1, 3)
  assert np.array_equal(parts.masks[0], mask)
  for split in ("train", "val"):
    made(tmp_path / "b" / split, mask, mode="L")
  parts = masks.open_masked(str(tmp_path / "b"), SILENT)
  assert (len(parts.masks), len(parts.test_masks)) == (10, 10)
  assert parts.words == "the folders train and val"


@pytest.mark.parametrize(
  ("change", "message"),
  [
    (lambda path: path.unlink(), "has no mask"),
    (lambda path: path.write_bytes(b"no"), "cannot be read"),
    (lambda path: Image.new("RGB", (10, 12)).save(path), "pixels of the kind RGB"),
    (lambda path: Image.new("L", (9, 12)).save(path), r"\(12, 9\) pixels, and its image \(12, 10"),
  ],
)
def test_a_mask_that_does_not_fit(tmp_path, change, message):
  mask = np.zeros((12, 10), np.uint8)
  mask[3:] = 1
  made(tmp_path, mask)
  change(tmp_path / "masks" / "3.png")
  with pytest.raises(ConfigError, match=message):
    masks.open_masked(str(tmp_path), SILENT)


def test_folders_without_masks_are_refused(tmp_path):
  with pytest.raises(ConfigError, match="neither the folders images and masks"):
    masks.open_masked(str(tmp_path), SILENT)
  made(tmp_path, np.ones((12, 10), np.uint8))
  with pytest.raises(ConfigError, match="have one class"):
    masks.open_masked(str(tmp_path), SILENT)
