"""VTAB's tasks: examples and labels, on small datasets with the features of TFDS's builders."""

import dataclasses

import numpy as np
import pytest

from tests import programs
from tests.extras.sources import vtab_fixture
from vit_jax import recipes
from vit_jax.data import images, sources
from vit_jax.extras.sources import vtab_tasks
from vit_jax.training import run as runs

SIZES = dict(train=37, validation=19, test=23)  # no round percentages
TRAIN, HELD_BACK = 8, 3


def protocol(name, split):
  """(split, index) of every example, from slices of lists in the notation of the protocol."""
  lists = {part: [(part, index) for index in range(size)] for part, size in SIZES.items()}
  train, validation, test = lists["train"], lists["validation"], lists["test"]
  from_train = lambda percentage: train[percentage * len(train) // 100 :]
  if name in ("caltech101", "cifar-100", "svhn"):
    held_back, scored = from_train(90), test
  elif name == "pets":
    held_back, scored = from_train(80), test
  elif name.startswith("clevr"):
    held_back, scored = from_train(90), validation
  elif name in ("eurosat", "resisc45"):
    held_back, scored = from_train(60), from_train(80)
  elif name.startswith("dspr"):
    held_back, scored = from_train(80), from_train(90)
  elif name.startswith("snorb"):
    held_back, scored = test, test[len(test) // 2 :]
  else:
    held_back, scored = validation, test
  parts = dict(train800=train[:TRAIN], val200=held_back[:HELD_BACK], test=scored)
  parts["train800val200"] = parts["train800"] + parts["val200"]
  return parts[split]


def marked(part, index, *, on):
  """An image of 8 x 8 pixels, 0 or `on`, that encodes its split and index."""
  number = list(SIZES).index(part) * 256 + index
  bits = [number >> bit & 1 for bit in range(64)]
  return np.array(bits, np.uint8).reshape(8, 8) * np.uint8(on)


def objects_of_clevr(rng):
  count = int(rng.integers(3, 11))
  near = rng.choice([7.5, 8.0, 8.0625, 8.5, 9.0, 9.25, 9.5, 10.0, 11.0])
  away = rng.uniform(near, 20, count)
  away[rng.integers(count)] = near
  plain = dict(color=0, material=0, shape=0, size=0, rotation=0.0, **{"3d_coords": [0, 0, 0]})
  return [plain | dict(pixel_coords=np.array([900, 900, z], np.float32)) for z in away]


def objects_of_kitti(rng):
  plain = dict(
    truncated=0.0,
    occluded=0,
    alpha=0.0,
    bbox=vtab_fixture.tfds.features.BBox(0.0, 0.0, 1.0, 1.0),
    dimensions=np.zeros(3, np.float32),
    rotation_y=0.0,
  )
  depths = rng.choice([-0.5, 5.0, 8.0, 8.125, 20.0, 20.5, 70.0], rng.integers(0, 4))
  return [
    plain | dict(type=int(rng.integers(8)), location=np.array([-3.0, 1.0, z], np.float32))
    for z in depths
  ]


def example(data, part, index, rng):
  """An example to store: the image, and a value for every feature that a task uses."""
  grey = marked(part, index, on=1 if data == "dsprites" else 255)
  colour = np.stack([grey] * 3, axis=-1)
  image = vtab_fixture.png(grey if data in ("dsprites", "smallnorb") else colour)
  if data == "clevr":
    return dict(image=image, objects=objects_of_clevr(rng))
  if data == "kitti":
    return dict(image=image, objects=objects_of_kitti(rng))
  if data == "dsprites":
    place, turn = int(rng.integers(32)), int(rng.integers(40))
    return dict(image=image, label_x_position=place, label_orientation=turn)
  if data == "smallnorb":
    return dict(
      image=image, label_azimuth=int(rng.integers(18)), label_elevation=int(rng.integers(9))
    )
  classes = {task.data: task.num_classes for task in vtab_tasks.TASKS.values()}[data]
  return dict(image=image, label=int(rng.integers(classes)))


def expected_label(name, stored):
  """Computes classes in another way than the rules: by comparison with every edge, by fractions."""
  above = lambda value, edges: sum(value > edge for edge in edges) - 1
  if name == "clevr-count":
    return len(stored["objects"]) - 3
  if name == "clevr-dist":
    nearest = min(one["pixel_coords"][2] for one in stored["objects"])
    return above(nearest, [0, 8, 8.5, 9, 9.5, 10, 100])
  if name == "kitti-dist":
    depths = [one["location"][2] for one in stored["objects"] if one["type"] in (0, 1, 2)]
    return above(min([*depths, 1000]), [-100, 8, 20, 999])
  if name == "dspr-loc":
    return int(np.floor(stored["label_x_position"] / 2))
  if name == "dspr-ori":
    return int(np.floor(stored["label_orientation"] / 2.5))
  return stored[{"snorb-azim": "label_azimuth", "snorb-elev": "label_elevation"}.get(name, "label")]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
  """The folder of all datasets, and the stored examples: {data: {split: [example]}}."""
  folder, rng = tmp_path_factory.mktemp("vtab"), np.random.default_rng(0)
  stored = {}
  for data in {task.data: None for task in vtab_tasks.TASKS.values()}:
    stored[data] = {
      part: [example(data, part, index, rng) for index in range(size)]
      for part, size in SIZES.items()
    }
    vtab_fixture.write_like(data, folder, stored[data])
  return folder, stored


@pytest.fixture
def stored(prepared, monkeypatch):
  monkeypatch.setenv("TFDS_DATA_DIR", str(prepared[0]))
  monkeypatch.setattr(vtab_tasks, "TRAIN", TRAIN)
  monkeypatch.setattr(vtab_tasks, "HELD_BACK", HELD_BACK)
  return prepared[1]


def open_task(name, split):
  return sources.open_source(f"vtab:{name}", split=split)


@pytest.mark.parametrize("split", vtab_tasks.SPLITS)
@pytest.mark.parametrize("name", vtab_tasks.TASKS)
def test_examples_and_labels_of_a_task(stored, name, split):
  task, source = vtab_tasks.TASKS[name], open_task(name, split)
  wanted = protocol(name, split)
  assert len(source) == len(wanted)
  assert len(source.class_names) == len(set(source.class_names)) == task.num_classes
  assert not source.multi_label
  for index, (part, row) in enumerate(wanted):
    found = source[index]
    pixels = images.as_rgb(found.image, max_pixels=64)
    np.testing.assert_array_equal(pixels, marked(part, row, on=255)[..., None].repeat(3, axis=-1))
    assert found.labels == (expected_label(name, stored[task.data][part][row]),)


def test_the_recipe_opens_its_data(stored):
  config = recipes.load(f"{programs.ROOT}/configs/vtab.py:ViT-B/16,svhn")
  data = runs.open_data(dataclasses.replace(config, batch_size=TRAIN))
  assert len(data.train) == TRAIN + HELD_BACK
  assert len(data.evaluations.heads()[0].source) == len(protocol("svhn", "test"))


# Sizes of TFDS's datasets, and the parts computed by hand.
REAL = {
  "caltech101": (dict(train=3059, test=6085), "train[2753:2953]", "test"),
  "cifar-100": (dict(train=50_000, test=10_000), "train[45000:45200]", "test"),
  "svhn": (dict(train=73_257, test=26_032, extra=531_131), "train[65931:66131]", "test"),
  "pets": (dict(train=3680, test=3669), "train[2944:3144]", "test"),
  "dtd": (dict(train=1880, validation=1880, test=1880), "validation[0:200]", "test"),
  "eurosat": (dict(train=27_000), "train[16200:16400]", "train[21600:]"),
  "resisc45": (dict(train=31_500), "train[18900:19100]", "train[25200:]"),
  "clevr-dist": (
    dict(train=70_000, validation=15_000, test=15_000),
    "train[63000:63200]",
    "validation",
  ),
  "dspr-ori": (dict(train=737_280), "train[589824:590024]", "train[663552:]"),
  "snorb-elev": (dict(train=24_300, test=24_300), "test[0:200]", "test[12150:]"),
  "kitti-dist": (dict(train=6347, validation=423, test=711), "validation[0:200]", "test"),
}


@pytest.mark.parametrize("name", REAL)
def test_parts_of_the_real_data_sets(name):
  sizes, held_back, test = REAL[name]
  found = [vtab_tasks.tfds_split(name, split, sizes) for split in vtab_tasks.SPLITS]
  assert found == ["train[:800]", held_back, f"train[:800]+{held_back}", test]


@pytest.mark.parametrize(
  ("name", "sizes", "held_back"),
  [
    ("dtd", dict(train=800, validation=200, test=9), "validation[0:200]"),
    ("svhn", dict(train=2000, test=9), "train[1800:2000]"),
    ("eurosat", dict(train=1334), "train[800:1000]"),
    # Percentages are rounded down: 90% of 2,015 is 1,813.5, which TFDS rounds up.
    ("svhn", dict(train=2015, test=9), "train[1813:2013]"),
    ("dtd", dict(train=799, validation=200, test=9), None),
    ("dtd", dict(train=800, validation=199, test=9), None),
    ("svhn", dict(train=1990, test=9), None),  # 199 after the cut
    ("eurosat", dict(train=1332), None),  # the cut is at 799
  ],
)
def test_the_smallest_data_sets_and_smaller_ones(name, sizes, held_back):
  if held_back:
    assert vtab_tasks.tfds_split(name, "val200", sizes) == held_back
    return
  with pytest.raises(sources.SourceError, match=r"is too small for the 800 \+ 200 training images"):
    vtab_tasks.tfds_split(name, "test", sizes)


def test_the_outer_edges_of_distances():
  """The others are among the examples above; a distance on an edge belongs below."""
  plain = dict(pixel_coords=np.float32([[1e6, -1e6, 200.0]] * 2), size=np.zeros(2, np.int64))
  for distance, label in ((0.0, -1), (1e-6, 0), (100.0, 5), (100.1, 6)):
    plain["pixel_coords"][1, 2] = distance
    assert vtab_tasks.object_distance(plain) == label
  kitti = dict(type=np.int64([1, 3, 7]), location=np.float32([[-1e3, 1e3, 0.0], [0] * 3, [0] * 3]))
  for distance, label in ((-1.0, 0), (999.0, 2), (1000.0, 3)):
    kitti["location"][0, 2] = distance
    assert vtab_tasks.vehicle_distance(kitti) == label


@pytest.mark.parametrize("values", [32, 40])
def test_groups_are_of_equal_size_in_order_and_complete(values):
  groups = [vtab_tasks.grouped(value, values=values) for value in range(values)]
  assert groups == [int(np.floor(np.float32(value) / (values / 16))) for value in range(values)]
  assert np.ptp(np.bincount(groups, minlength=16)) <= 1
  assert sorted(groups) == groups


def test_a_label_outside_of_the_classes_is_a_broken_example(stored, monkeypatch):
  source = open_task("clevr-dist", "test")
  monkeypatch.setattr(vtab_tasks, "OBJECT_EDGES", (50.0, 60.0))
  with pytest.raises(images.BadImage, match=r"clevr/3\.1\.0 validation example 0: its objects is"):
    source[0]


def test_what_there_is_not(stored, tmp_path, monkeypatch):
  with pytest.raises(sources.SourceError, match=r'no task "birds"; it has caltech101, cifar-100'):
    open_task("birds", "test")
  with pytest.raises(sources.SourceError, match=r'no split "train"; it has train800, val200'):
    open_task("dtd", "train")
  with pytest.raises(sources.SourceError, match="has no split 'validation'; it has train, test"):
    vtab_tasks.tfds_split("dtd", "test", dict(train=900, test=900))
  monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
  with pytest.raises(sources.SourceError, match=r"vit-jax prepare build sun397/tfds`"):
    open_task("sun397", "test")
