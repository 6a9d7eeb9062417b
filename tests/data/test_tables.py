"""Tables that name images and their classes."""

import pytest

from tests.data.made_sets import write_images
from vit_jax.data.preparation import listing
from vit_jax.data.sources import SourceError

pytestmark = pytest.mark.usefixtures("small_files")


def table(tmp_path, text):
  (tmp_path / "list.csv").write_text(text)
  return listing.Listing(str(tmp_path / "list.csv"))


def test_a_table_names_images_and_classes(tmp_path):
  (path, *_) = write_images(tmp_path / "in", {"x": 2})
  text = f'path,label\nin/x/001.jpg,"wasp, small"\n{path},ant\n\n'
  found = table(tmp_path, text)
  assert found.class_names == ("ant", "wasp, small")
  assert [found[i].labels for i in range(len(found))] == [(1,), (0,)]
  assert found[1].image == path.read_bytes()
  assert found.identity == table(tmp_path, text.removeprefix("path,label\n")).identity
  assert found.identity != table(tmp_path, "in/x/001.jpg,ant\n").identity


@pytest.mark.parametrize("header", ["path,label", "filename,class", "image_id,Label", "x/y,z"])
def test_a_header_is_no_image(tmp_path, header, caplog):
  write_images(tmp_path / "in", {"x": 2})
  for rows in ("in/x/000.jpg,ant\nin/x/001.jpg,bee\n", "gone.PNG,ant\ngone-too.tif,bee\n"):
    assert table(tmp_path, f"{header}\n{rows}").identity == table(tmp_path, rows).identity
  said = [record.getMessage() for record in caplog.records]
  assert len(said) == (0 if header == "path,label" else 2)
  assert all("is used as a header" in line for line in said)


@pytest.mark.parametrize("first", ["gone.jpg", "in/x/there", "neither"])
def test_a_first_row_that_may_be_an_image_is_one(tmp_path, first):
  (tmp_path / "in/x").mkdir(parents=True)
  (tmp_path / "in/x/there").touch()
  second = "nor this" if first == "neither" else "in/x/there"
  assert len(table(tmp_path, f"{first},ant\n{second},bee\n")) == 2


@pytest.mark.parametrize(
  ("text", "message"),
  [
    ("a.jpg,1\nb.jpg\n", r"has \['b\.jpg'\] in row 2"),
    ("a.jpg,\n", "in row 1; each row must be the path"),
    ("", "names no images"),
    ("path,label\n", "names no images"),
  ],
)
def test_wrong_tables(tmp_path, text, message):
  with pytest.raises(SourceError, match=message):
    table(tmp_path, text)


def test_a_table_that_is_not_there(tmp_path):
  with pytest.raises(SourceError, match=r"cannot be read as a CSV file: .*No such file"):
    listing.Listing(f"{tmp_path}/none.csv")
