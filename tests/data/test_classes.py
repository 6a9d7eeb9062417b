"""Class names: the same, the same in another order, different, and unknown."""

import unicodedata

import numpy as np
import pytest

from vit_jax.data import classes
from vit_jax.data.classes import imagenet_classes
from vit_jax.data.sources import SourceError
from vit_jax.data.sources.folder import Folder
from vit_jax.extras.preparation.splits import OfClasses
from vit_jax.extras.sources.csv_file import Csv
from vit_jax.weights.card import Card

WORDNET = tuple(f"n{i:08d}" for i in range(21_843))


NUMBERS = [str(i) for i in range(12)]


@pytest.mark.parametrize(
  ("theirs", "ours", "known", "outputs"),
  [
    (("cat", "dog"), ("cat", "dog"), True, None),
    (("LABEL_0", "LABEL_1"), ("LABEL_0", "LABEL_1"), True, None),
    # A folder's classes are sorted as text: 0, 1, 10, 11, 2, ...
    (NUMBERS, sorted(NUMBERS), True, (0, 1, 10, 11, 2, 3, 4, 5, 6, 7, 8, 9)),
    ((), ("cat", "dog"), False, None),
    (("class 0", "class 1"), ("cat", "dog"), False, None),
    (("LABEL_0", "LABEL_1"), ("cat", "dog"), False, None),
  ],
)
def test_names_tell_the_order_and_placeholders_nothing(theirs, ours, known, outputs):
  order = classes.of_head("", theirs, ours)
  assert (order.known, order.outputs) == (known, outputs)
  assert ("not named by the weights" in order.description) != known


@pytest.mark.parametrize("seed", range(5))
def test_every_output_goes_where_its_name_is(seed):
  rng = np.random.default_rng(seed)
  ours = [f"name {k}" for k in rng.permutation(30)]
  theirs = [str(name) for name in rng.permutation(ours)]
  order = classes.of_head("", theirs, ours)
  assert [theirs[place] for place in order.outputs] == ours
  moved = sum(a != b for a, b in zip(theirs, ours, strict=True))
  assert f"{moved} of the head's 30" in order.description


@pytest.mark.parametrize(
  ("theirs", "ours", "message"),
  [
    (("eight", "five"), ("0", "1"), "class 0 is 'eight' there and '0' in the data"),
    (("a", "b", "c"), ("a", "c", "d"), "class 1 is 'b' there and 'c' in the data"),
    (("a", "b", "b"), ("b", "a", "b"), "class 0 is 'a' there"),  # the two b are ambiguous
    (("a", "b", "b"), ("b", "a", "a"), "class 0 is 'a' there"),
    (("Cat", "dog"), ("cat", "dog"), "'Cat' there and 'cat'"),
    (("a", "b"), ("LABEL_0", "LABEL_1"), "class 0 is 'a' there and 'LABEL_0'"),
    (("class 1", "class 0"), ("a", "b"), "class 0 is 'class 1' there"),
    (("a\nvit_jax: done", "b"), ("x", "y"), r"'a\\nvit_jax: done' there"),
  ],
)
def test_other_names_are_refused(theirs, ours, message):
  with pytest.raises(ValueError, match=message):
    classes.of_head("", theirs, ours)


def test_published_weights_have_imagenets_order():
  order = classes.of_head("", (), imagenet_classes())
  assert order.known
  assert "WordNet" in order.description
  assert classes.of_head("", (), WORDNET).known
  others = (*WORDNET[:1000],), imagenet_classes()[::-1], imagenet_classes()[:999], WORDNET[::-1]
  assert not any(classes.of_head("", (), names).known for names in others)


@pytest.mark.parametrize(
  ("outputs", "sets", "known"),
  [
    (1000, [["n02102040", "n01440764"]], True),  # of Imagenette
    (1000, [["n02102040"], ["n01440764", "n02979186"]], True),
    (1000, [["n02102040"], ["cat"]], False),
    (1000, [["n02102040"], imagenet_classes()[::-1]], False),
    (1000, [[]], False),
    (1000, [], False),
    (10, [["n02102040", "n01440764"]], False),
  ],
)
def test_published_weights_have_imagenets_order_beside_a_few_of_its_classes(outputs, sets, known):
  found = classes.of_outputs("", (), outputs, sets)
  assert found.names == (imagenet_classes() if known else ())
  assert ("WordNet" in found.origin) == known


def test_a_setting_goes_before_what_the_weights_say(tmp_path):
  names, ours = tmp_path / "names.txt", ("cat", "dog")
  names.write_bytes("\ufeffdog\r\ncat\r\n".encode())
  for said in ((), ("x", "y"), ("cat", "dog")):
    assert classes.of_head(str(names), said, ours).outputs == (1, 0)
    assert classes.of_head("data", said, ours).outputs is None
    assert "config.class_names=data" in classes.of_head("data", said, ours).description
  assert classes.of_head("", ("dog", "cat"), ours).outputs == (1, 0)


@pytest.mark.parametrize(
  ("content", "message"),
  [
    (b"cat", "names 1 classes, but the head has 2"),
    (b"cat\n\ndog\n", "names 3 classes"),
    (b"", "names 0 classes"),
    (b"c\xff\ndog", "not text in UTF-8"),
    (b"cat\nowl", "class 1 is 'owl' there and 'dog'"),
    (None, "neither 'data' nor a file with a name per line: No such file"),
  ],
)
def test_files_that_do_not_name_the_classes(tmp_path, content, message):
  path = tmp_path / "names.txt"
  if content is not None:
    path.write_bytes(content)
  with pytest.raises(ValueError, match=message):
    classes.of_head(str(path), (), ("cat", "dog"))


def test_names_from_a_mac_are_those_of_other_systems(tmp_path):
  """A Mac writes an accent as a character of its own, so that it sorts elsewhere."""
  composed = ("Hose", "Hut", "H\u00f6se")
  mac = [unicodedata.normalize("NFD", name) for name in composed]
  for name in mac:
    (tmp_path / "images" / name).mkdir(parents=True)
    (tmp_path / "images" / name / "1.png").write_bytes(name.encode())
  (tmp_path / "table.csv").write_text("".join(f"images/{name}/1.png,{name}\n" for name in mac))
  (tmp_path / "names.txt").write_text("\n".join(mac))
  folder = Folder(str(tmp_path / "images"), split="")
  sources = folder, Csv(str(tmp_path / "table.csv")), OfClasses(folder, mac)
  names = [one.class_names for one in (*sources, Card(8, class_names=tuple(mac)))]
  assert {*names, classes.read_names(tmp_path / "names.txt")} == {composed}
  assert folder[2].image.decode() == mac[2]  # paths keep their bytes
  (tmp_path / "images" / composed[2]).mkdir()
  with pytest.raises(SourceError, match=r"two folders for class .*'Ho\\u0308se' and 'H\\xf6se'"):
    Folder(str(tmp_path / "images"), split="")


@pytest.mark.parametrize(
  ("theirs", "shown"),
  [
    ("H\u00f6se", r"\(U\+00F6 LATIN .* DIAERESIS and U\+006F LATIN SMALL LETTER O\)"),
    ("H\u043ese", r"\(U\+043E CYRILLIC SMALL LETTER O and U\+006F LATIN SMALL LETTER O\)"),
    ("Hut", "and 'Hose' in the data$"),
  ],
)
def test_names_that_look_alike_are_told_apart(theirs, shown):
  with pytest.raises(classes.OtherClasses, match=shown):
    classes.of_head("", (theirs, "b"), ("Hose", "b"))
