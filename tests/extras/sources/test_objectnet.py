"""ObjectNet from the folders of its release: borders, shared classes, correct labels, refusals."""

import cv2
import numpy as np
import pytest

from tests.extras.sources import objectnet_fixture
from vit_jax.data import sources
from vit_jax.data.images import BadImage


@pytest.fixture
def release(tmp_path):
  """A release, and its images by folder."""
  rng = np.random.default_rng(0)
  images = {
    folder: [rng.integers(0, 256, (6, 9, 3), np.uint8) for _ in range(2)]
    for folder in objectnet_fixture.CLASSES
  }
  objectnet_fixture.write(tmp_path, images)
  return tmp_path, images


def open_source(root, split=""):
  return sources.open_source(f"objectnet:{root}", split=split)


def test_shared_classes_without_their_border(release):
  root, images = release
  source = open_source(root)
  assert source.class_names[:2] == ("n01440764", "n01443537")
  assert len(source.class_names) == 1000
  assert list(source.class_names) == sorted(source.class_names)
  examples = [source[i] for i in range(len(source))]
  assert [example.labels for example in examples] == [(7,), (7,), (3, 900), (3, 900)]
  for example, image in zip(examples, images["bench"] + images["helmet"], strict=True):
    np.testing.assert_array_equal(example.image, image)
  assert examples[2].name == str(root / "images/helmet/000.png")
  assert [source.labels(i) for i in range(4)] == [example.labels for example in examples]


def test_a_broken_or_tiny_image_is_named(release):
  root, _ = release
  (root / "images/bench/000.png").write_bytes(b"no image")
  with pytest.raises(BadImage, match=r"bench/000\.png: "):
    open_source(root)[0]
  cv2.imwrite(str(root / "images/bench/000.png"), np.zeros((2, 5, 3), np.uint8))
  with pytest.raises(BadImage, match=r"bench/000\.png: 5 x 2 pixels are all border"):
    open_source(root)[0]
  source = sources.open_source(f"objectnet:{root}", max_pixels=87)
  with pytest.raises(BadImage, match="11 x 8 pixels are more than the 87 that are allowed"):
    source[2]


def swapped(**changes):
  return {str(i): line for i, line in objectnet_fixture.LINES.items()} | changes


@pytest.mark.parametrize(
  ("replaced", "message"),
  [
    (dict(folder_to_objectnet_label={"bench": "Bench"}), r'does not name the folder "helmet"'),
    (dict(folder_to_objectnet_label=["bench"]), r"label\.json\" is not a mapping to str"),
    (dict(folder_to_objectnet_label={"bench": 3}), r"label\.json\" is not a mapping to str"),
    (dict(objectnet_to_imagenet_1k={"Bench": "stool"}), r"holds the name 'stool', which does not"),
    (dict(pytorch_to_imagenet_2012_id=swapped(**{"0": 20})), r"must hold 1000 lines, and"),
    (dict(pytorch_to_imagenet_2012_id=swapped(**{"0": True})), r"is not a mapping to int"),
    (dict(imagenet_to_label_2012_v2=["seat 7"] * 1000), r"holds the name 'seat 7', which does not"),
    (dict(imagenet_to_label_2012_v2=["seat 7"]), r"must hold 1000 lines"),
    (dict(objectnet_to_imagenet_1k={}), r"no images of a class that ImageNet shares"),
    (dict(objectnet_to_imagenet_1k={"x": "y" * 2**20}), r"larger than 1,048,576 bytes"),
  ],
)
def test_mapping_files_that_are_not_what_they_should_be(release, replaced, message):
  root, _ = release
  objectnet_fixture.write_mappings(root / "mappings", **replaced)
  with pytest.raises(sources.SourceError, match=message):
    open_source(root)


def test_what_is_missing(release):
  root, _ = release
  with pytest.raises(sources.SourceError, match="has no splits"):
    open_source(root, "test")
  (root / "mappings/objectnet_to_imagenet_1k.json").write_text("[" * 10**5)
  with pytest.raises(sources.SourceError, match="is not JSON"):
    open_source(root)
  (root / "mappings/objectnet_to_imagenet_1k.json").unlink()
  with pytest.raises(
    sources.SourceError, match=r"1k\.json\" cannot be read .*the folder of the whole release"
  ):
    open_source(root)
  with pytest.raises(sources.SourceError, match=r'There is no folder ".*/none/images"'):
    open_source(root / "none")
