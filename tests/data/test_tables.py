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
  rows = "in/x/000.jpg,ant\nin/x/001.jpg,bee\n"
  assert table(tmp_path, f"{header}\n{rows}").identity == table(tmp_path, rows).identity
  said = [record.getMessage() for record in caplog.records]
  assert len(said) == (0 if header == "path,label" else 1)
  assert all("is used as a header" in line for line in said)


def test_a_first_row_that_may_be_an_image_is_one(tmp_path):
  write_images(tmp_path / "in", {"x": 2})
  (tmp_path / "in/x/000.jpg").rename(tmp_path / "in/x/there")
  assert len(table(tmp_path, "in/x/there,ant\nin/x/001.jpg,bee\n")) == 2
  with pytest.raises(SourceError, match="1 of 2 images that do not exist, the first in line 1"):
    table(tmp_path, "gone.jpg,ant\nin/x/001.jpg,bee\n")


@pytest.mark.parametrize(
  ("labels", "names"),
  [
    (["10", "2", "0", "1", "-3"], ("-3", "0", "1", "2", "10")),
    (["10", "2", "b"], ("10", "2", "b")),
  ],
)
def test_labels_that_are_whole_numbers_have_their_order(tmp_path, labels, names):
  write_images(tmp_path / "in", {"x": len(labels)})
  text = "".join(f"in/x/{i:03}.jpg,{label}\n" for i, label in enumerate(labels))
  assert table(tmp_path, text).class_names == names


@pytest.mark.parametrize("name", ["x.tar", "x.bin"])
def test_a_file_that_is_no_text_is_not_printed(tmp_path, name):
  (tmp_path / name).write_bytes(bytes(range(256)) * 9)
  with pytest.raises(SourceError, match="is not text in UTF-8") as raised:
    listing.Listing(f"{tmp_path}/{name}")
  assert str(raised.value).isprintable()
  assert ("unpack them" in str(raised.value)) == (name == "x.tar")


@pytest.mark.parametrize(
  ("text", "message"),
  [
    ("a.jpg,1\nb.jpg\n", r"has \['b\.jpg'\] in line 2"),
    ("a.jpg,\n", "in line 1; each line must be the path"),
    ("", "names no images"),
    ("path,label\n", "names no images"),
    (",".join("abcdefghij" * 1000), "each line must be the path"),
    (
      'path,label\na.jpg,"an\nant"\n\nx/gone.jpg,bee\n',
      r'1 of 2 images .* in line 5: ".*/gone\.jpg"',
    ),
  ],
)
def test_wrong_tables(tmp_path, text, message):
  write_images(tmp_path, {"x": 1})
  (tmp_path / "x/000.jpg").rename(tmp_path / "a.jpg")
  with pytest.raises(SourceError, match=message) as raised:
    table(tmp_path, text)
  assert len(str(raised.value)) < 500


def test_a_table_that_is_not_there(tmp_path):
  with pytest.raises(SourceError, match=r"cannot be read as a CSV file: .*No such file"):
    listing.Listing(f"{tmp_path}/none.csv")
