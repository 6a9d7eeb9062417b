"""The cache of decoded images: same batches, made once; an incomplete cache is refused."""

import json
import logging
import os
import pathlib
import re
import shutil

import numpy as np
import pytest
import simplejpeg

from tests.data.made_sets import write_images
from tests.data.numbered import Listed, jpegs, train
from tests.data.opened import assert_same, open_source
from vit_jax.config import RunError
from vit_jax.data import identity, images
from vit_jax.data.sources import Example, SourceError
from vit_jax.extras import prepared_cache as cache

SIDE, MAX_PIXELS = 40, 10**6  # the sources' images have sides from 24 to 200


@pytest.fixture(autouse=True)
def small_files(monkeypatch):
  monkeypatch.setattr(cache, "_FILE", 8)


def prepare(source, directory, *, side=SIDE, threads=2):
  """Prepares a cache; returns the arguments of all calls of `started` and `done`."""
  told = []
  cache.prepare(
    source,
    str(directory),
    side=side,
    max_pixels=MAX_PIXELS,
    threads=threads,
    started=lambda *numbers: told.append(numbers),
    done=told.append,
  )
  return told


def cached(source, directory, *, side=SIDE):
  return cache.Cached(source, str(directory), side=side, max_pixels=MAX_PIXELS)


class Shrunk(Listed):
  """The images of a source, reduced at each reading."""

  def __getitem__(self, index):
    example = super().__getitem__(index)
    try:
      pixels = images.shrink(example.image, side=SIDE, max_pixels=MAX_PIXELS)
    except images.BadImage:
      return example
    return example._replace(image=pixels)


def contents(directory) -> dict[str, bytes]:
  return {path.name: path.read_bytes() for path in pathlib.Path(directory).iterdir()}


# --- reduced images ---


def test_the_smaller_side_is_reduced_and_the_aspect_kept():
  pixels = np.random.default_rng(0).integers(0, 256, (90, 121, 3), np.uint8)
  assert images.shrink(pixels, side=60, max_pixels=10**6).shape == (60, 81, 3)
  turned = images.shrink(pixels.transpose(1, 0, 2).copy(), side=30, max_pixels=10**6)
  assert turned.shape == (40, 30, 3)
  for side in (90, 91, 1000):
    np.testing.assert_array_equal(images.shrink(pixels, side=side, max_pixels=10**6), pixels)


# --- content ---


def test_it_holds_every_example(tmp_path):
  source = jpegs(30)
  prepare(source, tmp_path)
  reduced, kept = Shrunk(source._examples), cached(source, tmp_path)
  assert (len(kept), kept.class_names, kept.multi_label) == (30, source.class_names, False)
  for index in range(30):
    assert_same(kept[index], reduced[index])
    assert (kept.labels(index), kept.name(index)) == kept[index][1:3]
  assert min(min(kept[index].image.shape[:2]) for index in range(30)) < SIDE  # not enlarged


@pytest.mark.parametrize("labels", [(), (3,), (0, 9, 2**40)])
@pytest.mark.parametrize("name", ["", "日本/é.jpg", os.fsdecode(b"broken \xff name")])
def test_records_keep_labels_and_names(labels, name):
  example = Example(np.arange(36, dtype=np.uint8).reshape(3, 4, 3), labels, name)
  back = cache.decode(cache.encode(example, side=9, max_pixels=99))
  assert (back.labels, back.name) == (labels, name)
  np.testing.assert_array_equal(back.image, example.image)


@pytest.mark.parametrize(
  "pixels",
  [
    np.arange(400, dtype=np.uint8).reshape(20, 20),
    np.zeros((20, 20, 1), np.uint8),
    np.zeros((20, 20, 3), np.uint8),
    np.zeros((4, 4, 3), np.float32),
    np.zeros((4, 4, 4), np.uint8),
  ],
)
def test_pixels_that_cannot_be_used_are_kept(pixels):
  with pytest.raises(images.BadImage) as without:
    images.shrink(pixels, side=9, max_pixels=399)
  back = cache.decode(cache.encode(Example(pixels, (3,), "name"), side=9, max_pixels=399))
  assert (back.labels, back.name) == ((3,), "name")
  assert back.image.dtype == pixels.dtype
  np.testing.assert_array_equal(back.image, pixels)
  with pytest.raises(images.BadImage, match=re.escape(str(without.value))):
    images.shrink(back.image, side=9, max_pixels=399)


def test_broken_images_are_masked_and_named_as_without_a_cache(tmp_path, caplog):
  source = jpegs(20)
  broken = {
    3: source[3].image[:-40],
    7: b"rubbish",
    9: simplejpeg.encode_jpeg(np.zeros((1001, 1000, 3), np.uint8)),
  }
  for index, data in broken.items():
    source._examples[index] = source[index]._replace(image=data)
  source._examples[11] = images.BadImage("row 11 has no image.")
  prepare(source, tmp_path)
  logs, masks = [], []
  for one in (source, cached(source, tmp_path)):
    caplog.clear()
    with caplog.at_level(logging.WARNING):
      (batch,) = train(one, steps=1, batch_size=20)
    logs.append([re.sub("0x[0-9a-f]+", "", message) for message in caplog.messages])
    masks.append(batch["mask"])
  assert len(logs[0]) == 4
  assert logs[0] == logs[1]
  np.testing.assert_array_equal(*masks)


def test_why_an_image_cannot_be_read_is_kept_with_any_name_of_a_file(tmp_path):
  source, reason = jpegs(20), os.fsdecode(b"of \xff, row 11 has no image.")
  source._examples[11] = images.BadImage(reason)
  prepare(source, tmp_path)
  with pytest.raises(images.BadImage) as found:
    cached(source, tmp_path)[11]
  assert str(found.value) == reason


# --- making it ---


def test_what_is_there_is_not_made_again(tmp_path):
  source = jpegs(30)
  told = prepare(source, tmp_path)
  (count, size, free), *done = told
  assert count == sum(done) == 30
  assert sorted(done) == [6, 8, 8, 8]
  records = [cache.encode(one, side=SIDE, max_pixels=MAX_PIXELS) for one in source._examples]
  assert size == pytest.approx(sum(map(len, records)), rel=0.01)
  assert free == pytest.approx(shutil.disk_usage(tmp_path).free, rel=0.1)
  before = contents(tmp_path)
  (tmp_path / "images-000001-of-000004.array_record").unlink()
  (tmp_path / "images-000001-of-000004.array_recordabc.partial").write_bytes(b"of a killed process")
  with pytest.raises(SourceError, match=r"lacks 1 of its 4 files; finish it with `vit-jax cache"):
    cached(source, tmp_path)
  told = prepare(source, tmp_path)
  assert (told[0][0], told[1:]) == (8, [8])
  assert contents(tmp_path) == before
  assert prepare(source, tmp_path)[1:] == []


def test_it_goes_on_after_an_image_that_cannot_be_read(tmp_path, monkeypatch):
  monkeypatch.setattr(identity, "READ", 4)  # without this image
  source = jpegs(30)
  whole = source._examples[20]
  source._examples[20] = FileNotFoundError(2, "No such file", "/data/gone.jpg")
  with pytest.raises(FileNotFoundError, match=r"gone\.jpg"):
    prepare(source, tmp_path, threads=1)
  names = [path.name for path in tmp_path.iterdir()]
  assert "images-000002-of-000004.array_record" not in names
  assert not any(name.endswith(".partial") for name in names)
  source._examples[20] = whole
  prepare(source, tmp_path)
  assert cached(source, tmp_path)[20].name == "file 20.jpg"


def test_none_is_begun_with_an_image_of_the_sample_that_cannot_be_read(tmp_path):
  """Otherwise it would be taken for another image once it is repaired."""
  source = jpegs(30)
  whole = source._examples[20]
  source._examples[20] = FileNotFoundError(2, "No such file", "/data/gone.jpg")
  with pytest.raises(FileNotFoundError, match=r"gone\.jpg"):
    prepare(source, tmp_path)
  assert not contents(tmp_path)
  source._examples[20] = whole
  prepare(source, tmp_path)
  assert cached(source, tmp_path)[20].name == "file 20.jpg"


# --- refusals ---


def test_a_folder_that_is_no_cache_of_these_images(tmp_path):
  with pytest.raises(SourceError, match=rf'no cache in "{tmp_path}".*make it with `vit-jax cache'):
    cached(jpegs(3), tmp_path)
  (tmp_path / "thesis").mkdir()
  (tmp_path / "thesis/thesis.tex").write_text("")
  with pytest.raises(SourceError, match="has files but is not a cache"):
    prepare(jpegs(3), tmp_path / "thesis")
  source, other, folder = jpegs(9), jpegs(9), tmp_path / "cache"
  prepare(source, folder)
  before = contents(folder)
  other.identity = "others"
  for wrong, side, message in (
    (source, SIDE + 1, f"its cache_side is {SIDE}, this run's {SIDE + 1}"),
    (jpegs(10), SIDE, "its images is 9, this run's 10"),
    (other, SIDE, "its source is 'listed', this run's 'others'"),
  ):
    for act in (cached, prepare):
      with pytest.raises(SourceError, match=f"is of other images: {message}"):
        act(wrong, folder, side=side)
  assert contents(folder) == before


def test_other_images_under_the_same_names(tmp_path):
  source, folder = jpegs(9), tmp_path / "cache"
  prepare(source, folder)
  (folder / "images-000001-of-000002.array_record").unlink()
  source._examples[3] = source[3]._replace(image=source[4].image)
  for act in (cached, prepare):
    with pytest.raises(SourceError, match="of other images: images with other content under"):
      act(source, folder)


def test_files_of_other_sizes(tmp_path, monkeypatch):
  monkeypatch.setattr(identity, "READ", 1)
  (_, path) = write_images(tmp_path / "photos", {"a": 2})
  source, folder = open_source(f"folder:{tmp_path}/photos"), tmp_path / "cache"
  prepare(source, folder)
  assert len(cached(open_source(f"folder:{tmp_path}/photos"), folder)) == 2
  path.write_bytes(path.read_bytes() + b"\0")
  with pytest.raises(SourceError, match="of other images: files of other sizes; give another"):
    cached(open_source(f"folder:{tmp_path}/photos"), folder)


def test_a_cache_that_does_not_say_of_which_images_it_is(tmp_path):
  source = jpegs(9)
  prepare(source, tmp_path)
  described = json.loads((tmp_path / "cache.json").read_text())
  for key in described:
    said = f"of other images: its {key} is None, this run's"
    if key in ("sizes", "content"):
      said = r"by an earlier version, .* make it again with `vit-jax cache`\.$"
    rest = {name: value for name, value in described.items() if name != key}
    (tmp_path / "cache.json").write_text(json.dumps(rest))
    for act in (cached, prepare):
      with pytest.raises(SourceError, match=said):
        act(source, tmp_path)


def test_a_disk_that_is_too_small(tmp_path, monkeypatch):
  usage = shutil.disk_usage(tmp_path)._replace(free=10**5)
  monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
  with pytest.raises(SourceError, match=r"100 images take about \d MB, but .* has 0 MB free"):
    prepare(jpegs(100), tmp_path)
  assert list(contents(tmp_path)) == ["cache.json"]


@pytest.mark.parametrize("text", ["", '{"format":', "3"])
def test_a_damaged_description(tmp_path, text):
  prepare(jpegs(3), tmp_path)
  (tmp_path / "cache.json").write_text(text)
  for act in (cached, prepare):
    with pytest.raises(SourceError, match=r'cache\.json" is damaged \(.+\); delete the folder and'):
      act(jpegs(3), tmp_path)


def test_a_damaged_file_is_named(tmp_path):
  prepare(jpegs(20), tmp_path)
  path = tmp_path / "images-000001-of-000003.array_record"
  data = bytearray(path.read_bytes())
  data[2000] ^= 1
  path.write_bytes(data)
  with pytest.raises(RunError, match=rf'Record 0 of "{path}" cannot.*it and run vit-jax cach'):
    cached(jpegs(20), tmp_path)[8]
