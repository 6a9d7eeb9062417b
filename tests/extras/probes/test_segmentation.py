"""The segmentation probe on made masks, and its scores against scikit-learn."""

import tracemalloc

import jax
import numpy as np
import pytest
from PIL import Image
from sklearn.metrics import confusion_matrix, jaccard_score

from tests.data.pictures import png
from vit_jax.config import ConfigError, Dataset
from vit_jax.data.crops import resized
from vit_jax.data.datasets import NamedDataset
from vit_jax.data.sources import Example, Source
from vit_jax.extras.probes import masks, segmentation, windows
from vit_jax.process.progress import SILENT
from vit_jax.weights.card import Card

GRID = 4, 4
SIDE = 16


def example(images, seed):
  """Features that tell the class of each patch, with noise, and masks."""
  rng = np.random.default_rng(seed)
  classes = rng.integers(0, 3, (images, *GRID))
  means = np.random.default_rng(9).standard_normal((3, 8))
  patches = means[classes] + 0.3 * rng.standard_normal((images, *GRID, 8))
  large = [np.uint8(np.kron(each, np.ones((6, 6)))) for each in classes]
  for mask in large:
    mask[0] = 255
  return np.float32(patches.reshape(images, 16, 8)), large


def test_a_linear_probe_learns_made_masks():
  patches, large = example(20, 0)
  squares = [windows.nearest(mask, (SIDE, SIDE)) for mask in large]
  options = dict(grid=GRID, classes=3, seed=0)
  probe = segmentation.fit(patches, squares, steps=120, **options)
  test, test_masks = example(10, 1)
  cells = segmentation.confusion(probe, test, test_masks, GRID, Card(SIDE))
  assert cells.sum() == sum((mask != 255).sum() for mask in test_masks)
  predictions = []
  for features, mask in zip(test, test_masks, strict=True):
    logits = features @ probe["kernel"] + probe["bias"]
    with jax.enable_x64():
      pixels = segmentation.enlarged(logits[None], GRID, (SIDE, SIDE))
      flat = pixels.reshape(1, SIDE**2, -1)
      large = segmentation.enlarged(flat, (SIDE, SIDE), mask.shape)
    predictions.append(np.asarray(large[0]).argmax(axis=-1)[mask != 255])
  labels = np.concatenate([mask[mask != 255] for mask in test_masks])
  predictions = np.concatenate(predictions)
  assert np.abs(cells - confusion_matrix(labels, predictions)).sum() <= 2e-3 * len(labels)
  found = segmentation.scores(cells)
  assert found["miou"] == pytest.approx(
    jaccard_score(labels, predictions, average="macro"), abs=1e-3
  )
  assert found["miou"] > 0.6


@pytest.mark.parametrize(
  ("length", "side", "expected"),
  [(512, 512, [0]), (683, 512, [0, 171]), (853, 512, [0, 341]), (1000, 512, [0, 341, 488])],
)
def test_windows_follow_one_another_and_the_last_ends_at_the_border(length, side, expected):
  assert windows.starts(length, side) == expected


class Pictures(Source):
  """Images in memory."""

  identity, class_names = "pictures", ()

  def __init__(self, images):
    self.images = images

  def __len__(self):
    return len(self.images)

  def __getitem__(self, index):
    return Example(self.images[index], (), self.name(index))

  def labels(self, index):
    return ()


def test_images_and_masks_are_cut_alike():
  card = Card(SIDE)
  rng = np.random.default_rng(0)
  shapes = [(20, 45), (33, 16), (8, 8)]
  images = [rng.integers(0, 256, (*shape, 3)).astype(np.uint8) for shape in shapes]
  large = [image[..., 0] for image in images]
  cut = windows.of_images(NamedDataset("", None, Pictures(images)), large, card).source
  of_masks = list(windows.of_masks(large, card))
  # 16 x 36, 33 x 16 and 16 x 16 pixels, with windows 11 pixels apart.
  places = [(0, 0, 0), (0, 0, 11), (0, 0, 20), (1, 0, 0), (1, 11, 0), (1, 17, 0), (2, 0, 0)]
  assert len(cut) == len(of_masks) == len(places)
  assert len({cut.name(i) for i in range(len(cut))}) == len(places)
  sizes = [(16, 36), (33, 16), (16, 16)]
  for i, (row, top, left) in enumerate(places):
    height, width = sizes[row]
    whole = resized(images[row], height=height, width=width, resampling=card.resampling)
    np.testing.assert_array_equal(cut[i].image, whole[top : top + SIDE, left : left + SIDE])
    for y, x in ((0, 0), (5, 9), (15, 15)):
      old_y = int((top + y + 0.5) * shapes[row][0] / height)
      old_x = int((left + x + 0.5) * shapes[row][1] / width)
      assert of_masks[i][y, x] == large[row][old_y, old_x]


def bilinear(values, size):
  """One map (rows, columns) enlarged to (size, size), a pixel at a time."""
  places = [(np.arange(size) + 0.5) * length / size - 0.5 for length in values.shape]
  along = [np.interp(places[0], range(len(values)), column) for column in values.T]
  return np.stack([np.interp(places[1], range(values.shape[1]), row) for row in np.array(along).T])


def test_the_logits_of_windows_are_averaged():
  rng = np.random.default_rng(0)
  places = [(0, 0), (0, 11), (0, 20)]
  maps = rng.standard_normal((3, *GRID, 2)).astype(np.float32)
  found = segmentation.joined(maps, places, (SIDE, 36), SIDE)
  for kind in range(2):
    large = [bilinear(each[..., kind], SIDE) for each in maps]
    for y in range(SIDE):
      for x in range(36):
        seen = [large[i][y, x - left] for i, (_, left) in enumerate(places) if 0 <= x - left < SIDE]
        assert found[y, x, kind] == pytest.approx(np.mean(seen), abs=1e-5)


def test_a_large_image_needs_the_logits_of_one_class_at_a_time():
  card, classes = Card(SIDE), 40
  rng = np.random.default_rng(0)
  mask = np.zeros((300, 400), np.uint8)
  count = len(windows.places(windows.resized_shape(mask.shape, card), SIDE))
  probe = {"kernel": rng.integers(-1, 2, (8, classes)) * 1.0, "bias": np.zeros(classes)}
  patches = np.float32(rng.integers(-1, 2, (count, 16, 8)))
  tracemalloc.start()
  cells = segmentation.confusion(probe, patches, [mask], GRID, card)
  _, peak = tracemalloc.get_traced_memory()
  tracemalloc.stop()
  assert peak < 60 * mask.size  # bytes; the logits of all classes have 160 for each pixel
  assert cells.sum() == cells[0].sum() == mask.size


def test_of_equal_logits_the_first_is_predicted():
  logits = np.random.default_rng(0).integers(-3, 4, (8, 9, 5)).astype(np.float32)
  expected = segmentation.cv2_enlarged(logits, (30, 40)).argmax(axis=-1)
  np.testing.assert_array_equal(segmentation.predicted(logits, (30, 40)), expected)


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
  parts = masks.open_masked(str(tmp_path / "a"), (), SILENT)
  assert (len(parts.masks), len(parts.test_masks), parts.classes) == (9, 1, 3)
  assert np.array_equal(parts.masks[0], mask)
  for split in ("train", "val"):
    made(tmp_path / "b" / split, mask, mode="L")
  parts = masks.open_masked(str(tmp_path / "b"), (), SILENT)
  assert (len(parts.masks), len(parts.test_masks)) == (10, 10)
  assert parts.words == "the folders train and val"


def test_images_that_were_trained_on_are_not_scored(tmp_path):
  mask = np.zeros((12, 10), np.uint8)
  mask[3:] = 2
  for split in ("train", "val"):
    made(tmp_path / split, mask)
  known = [(Dataset(f"folder:{tmp_path / 'val'}", label_key=""), "")]
  with pytest.raises(ConfigError, match=r"teacher were trained on .*10 images .*--allow-overlap"):
    masks.open_masked(str(tmp_path), known, SILENT)
  parts = masks.open_masked(str(tmp_path), known, SILENT, allow_overlap=True)
  assert "have 10 images (such as" in parts.overlap
  scored = tmp_path / "val" / "images" / "0.jpg"
  scored.unlink()
  scored.symlink_to(tmp_path / "train" / "images" / "0.jpg")
  with pytest.raises(ConfigError, match=r"The training images .*1 image .*that are not trained on"):
    masks.open_masked(str(tmp_path), (), SILENT, allow_overlap=True)


def test_images_of_other_channels_have_masks(tmp_path):
  mask = np.zeros((12, 10), np.uint8)
  mask[3:] = 2
  made(tmp_path, mask)
  for path in (tmp_path / "images").iterdir():
    path.unlink()
    np.save(path.with_suffix(".npy"), np.zeros((12, 10, 5), np.uint8))
  parts = masks.open_masked(str(tmp_path), (), SILENT)
  assert (len(parts.masks), parts.classes) == (9, 3)


GREY4 = [b"\x01\x20\x10\x00\x30"] * 12  # classes up to 3, which Pillow multiplies by 17


@pytest.mark.parametrize(
  ("change", "message"),
  [
    (lambda path: path.unlink(), "has no mask"),
    (lambda path: path.write_bytes(b"no"), "cannot be read"),
    (lambda path: Image.new("RGB", (10, 12)).save(path), "pixels of the kind RGB"),
    (lambda path: path.write_bytes(png(GREY4, width=10, depth=4, colour=0)), "of the kind L;4; it"),
    (lambda path: Image.new("L", (9, 12)).save(path), r"\(12, 9\) pixels, and its image \(12, 10"),
  ],
)
def test_a_mask_that_does_not_fit(tmp_path, change, message):
  mask = np.zeros((12, 10), np.uint8)
  mask[3:] = 1
  made(tmp_path, mask)
  change(tmp_path / "masks" / "3.png")
  with pytest.raises(ConfigError, match=message):
    masks.open_masked(str(tmp_path), (), SILENT)


def test_folders_without_masks_are_refused(tmp_path):
  with pytest.raises(ConfigError, match="neither the folders images and masks"):
    masks.open_masked(str(tmp_path), (), SILENT)
  made(tmp_path, np.ones((12, 10), np.uint8))
  with pytest.raises(ConfigError, match=r"have one class; a probe needs two\.$"):
    masks.open_masked(str(tmp_path), (), SILENT)


def test_masks_of_0_and_255_are_told_that_255_is_not_scored(tmp_path):
  mask = np.zeros((12, 10), np.uint8)
  mask[3:] = 255
  made(tmp_path, mask, mode="L")
  with pytest.raises(ConfigError, match=r"needs two\. Their value 255 is not scored; .* as 1\.$"):
    masks.open_masked(str(tmp_path), (), SILENT)
