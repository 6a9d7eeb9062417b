"""What a batch holds beside images: fields of the source, and several views of an image."""

import numpy as np
import pytest

from tests import resolved
from tests.data import numbered
from tests.data.numbered import Listed, whole
from vit_jax.config import ConfigError, Mesh, ObjectiveSettings, View
from vit_jax.data import images
from vit_jax.data.batches import Reader
from vit_jax.data.layout import Crop, FieldError, Layout
from vit_jax.data.pipeline import DecodedCache
from vit_jax.data.sources import Example, Mixed, Selected, Unlabelled, base
from vit_jax.data.sources.base import Field
from vit_jax.data.sources.base import Listed as ListedRows
from vit_jax.devices import mesh as meshes

SIDE = 4
DECLARED = {
  "parts": Field((), "uint8", padding=255, dense=True),
  "depth": Field((2,), "float32", padding=-1, dense=True),
  "place": Field((3,), "int32"),
}


class Fields(Listed):
  """Images that say which example they are, with fields."""

  fields = DECLARED
  identity = "fields"


def example(number, side=SIDE):
  rng = np.random.default_rng(number)
  have = dict(
    parts=rng.integers(0, 9, (side, side), np.uint8),
    depth=np.float32(rng.normal(size=(side, side, 2))),
    place=np.int32(rng.integers(0, 99, 3)),
  )
  return Example(np.full((side, side, 3), number, np.uint8), (number % 10,), f"n{number}", have)


def source(count=12):
  return Fields([example(number) for number in range(count)])


def layout(of, given=DECLARED):
  return Layout.of(of, {"image": Crop(lambda image, rng: whole(image), SIDE)}, given)


def batches(of, steps=2, made=None):
  return numbered.train(of, steps=steps, batch_size=6, threads=2, made=made or layout(of))


def test_fields_come_with_their_image():
  of = source()
  views = [of, Unlabelled(of), Selected(of, ListedRows(range(12)), "x"), Mixed([of, source(3)])]
  for view in views:
    for batch in batches(view):
      assert {*batch} - {"labels"} == {"image", "mask", *DECLARED}
      for row, image in enumerate(batch["image"]):
        for name, value in example(image[0, 0, 0]).fields.items():
          assert batch[name].dtype == value.dtype
          np.testing.assert_array_equal(batch[name][row], value)


def test_only_those_that_are_asked_for_come():
  of = source()
  (batch,) = batches(of, 1, layout(of, {"place": DECLARED["place"]}))
  assert {*batch} == {"image", "labels", "mask", "place"}


def test_rows_that_do_not_count_hold_the_padding():
  of = source()
  of._examples[3] = of[3]._replace(image=b"rubbish")
  of._examples[5] = OSError("gone")
  crop = Crop(numbered.TRAIN, numbered.SIZE)
  found = batches(of, 2, Layout.of(of, {"image": crop}, DECLARED))
  assert sum((batch["mask"] == 0).sum() for batch in found) == 2
  for batch in found:
    empty = batch["mask"] == 0
    assert (batch["parts"][empty] == 255).all()
    assert (batch["depth"][empty] == -1).all()
    for name in ("place", "image", "labels"):
      assert (batch[name][empty] == 0).all()


def test_the_last_batch_of_an_evaluation_is_filled_up_with_padding():
  of = source(7)
  made = Layout.of(of, {"image": Crop(whole, SIDE)}, DECLARED)
  read = numbered.evaluate(of, batch_size=4, made=made)
  parts = np.concatenate([batch["parts"] for batch in read])
  np.testing.assert_array_equal(parts[:7], [example(i).fields["parts"] for i in range(7)])
  assert read[1]["mask"].tolist() == [1, 1, 1, 0]
  assert (parts[7] == 255).all()


def test_a_map_of_another_size_breaks_its_example(caplog):
  of = source(6)
  for number, sides, map_sides in ((2, (4, 4), (5, 5)), (3, (3, 4), (4, 3))):
    fields = of[number].fields | {"parts": np.zeros(map_sides, np.uint8)}
    of._examples[number] = of[number]._replace(image=np.zeros((*sides, 3), np.uint8), fields=fields)
  (batch,) = batches(of, 1)
  assert batch["mask"].sum() == 4
  for said in (
    "n2: its parts has 5 rows and 5 columns, and the image 4 rows and 4 columns\n",
    "n3: its parts has 4 rows and 3 columns, and the image 3 rows and 4 columns; values are for",
  ):
    assert said in caplog.text


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize(
  ("change", "message"),
  [
    (dict(place=np.float32([1, 2, 3])), r"'place' of n2 is float32 \(3,\), .* int32 \(3,\)"),
    (dict(place=[1, 2, 3]), r"'place' of n2 is list \(3,\), and must be int32 \(3,\)"),
    (dict(place=7), r"'place' of n2 is int \(\), and must be"),
    (dict(place=np.int32([1, 2])), r"'place' of n2 is int32 \(2,\)"),
    (dict(place=None), r"n2 lacks the field 'place'"),
    ({}, "n2 lacks the field 'parts'"),
    (dict(parts=np.zeros((4, 4), np.int64)), r"'parts' of n2 is int64 \(4, 4\)"),
    (dict(parts=np.zeros(4, np.uint8)), r"'parts' of n2 is uint8 \(4,\)"),
    (dict(depth=np.zeros((4, 4, 3), np.float32)), r"'depth' of n2 is float32 \(4, 4, 3\)"),
  ],
)
def test_what_is_not_as_declared_ends_the_run_with_a_name(change, message, kept):
  of = source(6)
  fields = {**of[2].fields, **change} if change else {}
  of._examples[2] = of[2]._replace(fields=fields)
  with pytest.raises(FieldError, match=message):
    batches(DecodedCache(of, DECLARED) if kept else of, 1)


DATA = resolved.data(image_size=16)
VIEWS = {"image": View(DATA)}


DENSE = {"parts": DECLARED["parts"]}
REFUSED = [
  ({"labels": Field()}, VIEWS, r"asks needs a field 'labels'; rename it"),
  ({"a b": Field()}, VIEWS, r"a field 'a b'; rename it"),
  ({"wide": Field((), "float64")}, VIEWS, r"'wide' with the type 'float64'"),
  ({"wide": Field((), "uint8", padding=256)}, VIEWS, r"'wide' .* the padding 256"),
  ({"wide": Field((), "uint32", padding=2**80)}, VIEWS, r"'wide' .* the padding 12089"),
  ({"wide": Field((), "float16", padding=1e6)}, VIEWS, r"'wide' .* the padding 1000000"),
  ({"wide": Field((), "int32", padding=0.5)}, VIEWS, r"'wide' .* the padding 0\.5"),
  ({"wide": Field((), "bool", padding=2)}, VIEWS, r"'wide' .* the padding 2"),
  ({"wide": Field((), "float32", padding=float("nan"))}, VIEWS, r"'wide' .* the padding nan"),
  ({"wide": Field((), "int32", padding=float("inf"))}, VIEWS, r"'wide' .* the padding inf"),
  (DENSE, {"local": View(DATA)}, r"'parts', which follows the crop of \"image\""),
  (DENSE, {"image": View(DATA, 2)}, r"'parts', which follows the crop of \"image\""),
  ({}, {"mask": View(DATA)}, r"asks has images called '.*; rename them"),
  ({}, {"a b": View(DATA)}, r"asks has images called '.*; rename them"),
  ({}, {"a": View(DATA, -1)}, r"asks has images called '.*; rename them"),
]


@pytest.mark.parametrize(("needed", "views", "message"), REFUSED)
def test_declarations_are_checked(needed, views, message):
  padded = {"far": Field((), "float32", padding=float("inf")), "yes": Field((), "bool", padding=1)}
  base.check_fields("asks", DECLARED | padded, VIEWS)
  with pytest.raises(ConfigError, match=message):
    base.check_fields("asks", needed, views)


@pytest.mark.parametrize(
  ("needed", "message"),
  [
    ({"masks": Field()}, r"the field 'masks', and FOLDER lacks it: it has 'parts', 'place'; take"),
    ({"place": Field((4,), "int32")}, r"'place' as .*\(4,\).*, and FOLDER has .*\(3,\)"),
  ],
)
def test_a_source_has_what_is_needed(needed, message):
  given = {name: DECLARED[name] for name in ("parts", "place")}
  base.check_given_fields("asks", given, DECLARED, "FOLDER")
  with pytest.raises(ConfigError, match=message):
    base.check_given_fields("asks", needed, given, "FOLDER")


def test_small_images_are_kept_with_the_fields_that_are_needed():
  of = source()
  kept = DecodedCache(of, ["place"])
  for _ in range(2):
    for number in range(12):
      assert {*kept[number].fields} == {"place"}
      np.testing.assert_array_equal(kept[number].fields["place"], of[number].fields["place"])
  assert kept.fields == {"place": DECLARED["place"]}


class Several(ObjectiveSettings):
  """Two large and three small views of an image."""

  def views(self, data):
    small = data.cropped(8, (0.05, 0.3))
    return {"large": View(data, 2), "small": View(small, 3), "one": View(small)}


def test_views_have_sizes_and_draws_of_their_own():
  data = resolved.data(image_size=16, threads=0, flip=False)
  mesh = meshes.make(Mesh(), batch_size=16, accumulation=1)
  draw = np.random.default_rng(0).integers
  of = Listed([Example(draw(0, 256, (30, 40, 3), np.uint8), (1,), str(n)) for n in range(20)])
  batch = next(Reader(data, mesh, 16, 1, Several()).training(of, parts=(), seed=0, start=0))
  shapes = {name: batch[name].shape for name in ("large", "small", "one")}
  assert shapes == dict(large=(16, 2, 16, 16, 3), small=(16, 3, 8, 8, 3), one=(16, 8, 8, 3))
  plain = next(Reader(data, mesh, 16, 1).training(of, parts=(), seed=0, start=0))
  np.testing.assert_array_equal(batch["large"][:, 0], plain["image"])  # the first draw
  for one, other in ((0, 1), (1, 2)):
    assert (batch["small"][:, one] != batch["small"][:, other]).any()
  assert (batch["large"][:, 0] != batch["large"][:, 1]).any()


def test_several_squares_are_cut_from_pixels_that_are_decoded_once(monkeypatch):
  decoded, decode = [], images.as_channels
  seen = lambda image, *channels, **options: (
    decoded.append(isinstance(image, bytes)) or decode(image, *channels, **options)
  )
  monkeypatch.setattr(images, "as_channels", seen)
  data, mesh = resolved.data(image_size=16), meshes.make(Mesh(), batch_size=16, accumulation=1)
  made = Reader(data, mesh, 16, 1, Several()).layout(numbered.jpegs(1))
  row = made.row(numbered.jpegs(1)[0], rng=np.random.default_rng(0))
  assert row["small"].shape == (3, 8, 8, 3)
  assert decoded.count(True) == 1
