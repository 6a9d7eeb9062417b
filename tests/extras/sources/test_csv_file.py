"""Tables that name images and their labels."""

import os

import pytest

from tests.data.made_sets import write_images
from tests.data.opened import open_source
from vit_jax.data import datasets, sources
from vit_jax.data.sources import ColumnError, SourceError


@pytest.fixture
def table(tmp_path):
  """Opens a table with a text, beside the images x/000.jpg, x/001.jpg and so on."""
  write_images(tmp_path, {"x": 6})

  def opened(text, split="", **options):
    data = text if isinstance(text, bytes) else text.encode()
    (tmp_path / "list.csv").write_bytes(data)
    return open_source(f"csv:{tmp_path}/list.csv", split, **options)

  return opened


def labels(source):
  return [[source.class_names[label] for label in source[i].labels] for i in range(len(source))]


def test_a_table_names_images_and_classes(table, tmp_path):
  text = f'path,label\nx/001.jpg,"wasp, small"\n{tmp_path}/x/000.jpg,ant\n\n'
  source = table(text)
  assert source.class_names == ("ant", "wasp, small")
  assert labels(source) == [["wasp, small"], ["ant"]]
  assert source[1].image == (tmp_path / "x/000.jpg").read_bytes()
  assert source.identity == table(text.removeprefix("path,label\n")).identity
  assert source.identity != table("x/001.jpg,ant\n").identity
  assert source.identity != table(text.replace("ant", "bee")).identity
  first, second = "x/001.jpg,{}\nx/002.jpg,{}\n", ("ant", "bee")
  assert table(first.format(*second)).identity != table(first.format(*second[::-1])).identity


@pytest.mark.parametrize(
  "text",
  [
    "path,label\nx/000.jpg,ant\nx/001.jpg,bee\n",
    "filename,class\nx/000.jpg,ant\nx/001.jpg,bee\n",
    "image_id,Label\nx/000.jpg,ant\nx/001.jpg,bee\n",
    "a b,z\nx/000.jpg,ant\nx/001.jpg,bee\n",
    "n;category;file_name\n1;ant;x/000.jpg\n2;bee;x/001.jpg\n",
    "path , label\nx/000.jpg, ant \nx/001.jpg , bee\n",
    "size, in px;label;file\n1;ant;x/000.jpg\n2;bee;x/001.jpg\n",
    "size, in px;label;file\n1, 2;ant;x/000.jpg\n2, 3;bee;x/001.jpg\n",
    '"kind, or class";path\nant;x/000.jpg\nbee;x/001.jpg\n',
    "note; of a kind,label,file\na,ant,x/000.jpg\nb,bee,x/001.jpg\n",
    "a, b\tlabel\tfile\r1, 2\tant\tx/000.jpg\r2, 3\tbee\tx/001.jpg\r",
    "\ufeffsize\tlabel\timage\r\n1\tant\tx/000.jpg\r\n2\tbee\tx/001.jpg\r\n",
  ],
)
def test_the_header_tells_the_columns(table, text):
  source = table(text)
  assert source.identity == table("x/000.jpg,ant\nx/001.jpg,bee\n").identity
  assert len(source.notes) == (0 if text.startswith(("path,label", "path , label")) else 1)
  assert all("images are in" in note for note in source.notes)
  unlabelled = table(text, label_key="").notes
  assert bool(unlabelled) == ("path" not in text.split("\n")[0])


def test_the_usual_column_of_images_needs_no_note_if_labels_are_left_out(table):
  assert table("path,kind\nx/000.jpg,ant\n", label_key="").notes == ()


def test_columns_can_be_chosen(table):
  text = "path,front,label,kind\nx/000.jpg,x/002.jpg,ant,7\nx/001.jpg,x/003.jpg,bee,10\n"
  source = table(text, image_key="front", label_key="kind")
  assert source.class_names == ("7", "10")
  assert source[1].name.endswith("x/003.jpg")


def test_the_usual_names_come_first_in_any_case(table):
  source = table("File,Label,Class\nx/000.jpg,ant,7\nx/001.jpg,bee,10\n")
  assert source.class_names == ("ant", "bee")
  source = table("path,Image,label,Label\nx/002.jpg,x/000.jpg,ant,7\nx/003.jpg,x/001.jpg,bee,10\n")
  assert source.class_names == ("ant", "bee")
  assert source[1].name.endswith("x/001.jpg")


def test_a_first_row_that_may_be_an_image_is_one(table, tmp_path):
  (tmp_path / "x/000.jpg").rename(tmp_path / "x/there")
  assert len(table("x/there,ant\nx/001.jpg,bee\n")) == 2


def test_several_labels(table):
  source = table("x/000.jpg,dog|cat\nx/001.jpg,\nx/002.jpg,cat\nx/003.jpg,bee| dog\n", "[1:]")
  whole = table("x/000.jpg,dog|cat\nx/001.jpg,\nx/002.jpg,cat\nx/003.jpg,bee| dog\n")
  assert whole.multi_label
  assert "any number of labels" in whole.notes[0]
  assert whole.class_names == source.class_names == ("bee", "cat", "dog")
  assert labels(whole) == [["dog", "cat"], [], ["cat"], ["bee", "dog"]]
  kept = {source.name(i): labels(source)[i] for i in range(3)}
  assert kept.items() < {whole.name(i): labels(whole)[i] for i in range(4)}.items()


def test_all_splits_have_the_same_kind_of_labels(table):
  rows = ("0.jpg,dog|cat,train", "1.jpg,cat,train", "2.jpg,cat,test", "3.jpg,,test")
  text = "\n".join(["path,label,split", *(f"x/00{row}" for row in rows)])
  assert table(text, "train").multi_label
  test = table(text, "test")
  assert test.multi_label
  assert labels(test) == [["cat"], []]


def test_splits_are_a_column(table):
  lines = [f"x/{i:03}.jpg,{i % 2},{'test' if i > 3 else 'train'}\n" for i in range(6)]
  text = "path,label,split\n" + "".join(lines)
  train, half, test = (table(text, split) for split in ("train", "train[:50%]", "test"))
  assert (len(train), len(half), len(test)) == (4, 2, 2)
  assert sorted(map(half.labels, range(2))) == [(0,), (1,)]
  assert datasets.shared_images(train, test) is None
  assert "All splits of" in table(text).notes[0]
  unnamed = table(text.replace("test", ""), "train")
  assert len(unnamed) == 4
  assert any("2 rows of" in note and "are left out" in note for note in unnamed.notes)


@pytest.mark.parametrize("column", ["split", "Split"])
def test_the_splits_of_a_column_are_its_parts(table, tmp_path, column):
  text = f"path,label,{column}\nx/000.jpg,a,TRAIN\nx/001.jpg,a,val\n"
  assert len(table(text, "TRAIN")) == 1
  spec = f"csv:{tmp_path}/list.csv"
  assert sources.named_parts(spec) == {"train": (spec, "TRAIN"), "val": (spec, "val")}
  (tmp_path / "list.csv").write_text(text + "x/002.jpg,a\n")
  with pytest.raises(SourceError, match=r"has \['x/002.jpg', 'a'\] in line 4"):
    sources.named_parts(spec)


@pytest.mark.parametrize(
  ("column", "values", "told"),
  [
    ("data set", ("train", "valid", "test"), dict(train="train", valid="valid", test="test")),
    ("Partition", ("TRAIN", "Test Set", ""), dict(train="TRAIN", test="Test Set")),
    ("subset", ("trainset", "val-set"), dict(train="trainset", val="val-set")),
  ],
)
def test_a_column_of_splits_is_known_by_its_values(table, tmp_path, column, values, told):
  rows = [f"{i},x/{i:03}.jpg,{'ab'[i % 2]},{values[i % len(values)]},train{i}\n" for i in range(6)]
  text = f"class id,filepaths,labels,{column},key\n{''.join(rows)}"
  columns, taken = table(text).notes
  assert columns.endswith(f"images are in 'filepaths', labels in 'labels', splits in {column!r}.")
  assert taken.startswith("All splits of")
  spec = f"csv:{tmp_path}/list.csv"
  assert sources.named_parts(spec) == {word: (spec, value) for word, value in told.items()}
  for place, value in enumerate(values):
    if value:
      names = {f"{tmp_path}/x/{i:03}.jpg" for i in range(place, 6, len(values))}
      source = table(text, value)
      assert {*map(source.name, range(len(source)))} == names


@pytest.mark.parametrize(
  ("column", "values"),
  [("is_valid", "01"), ("usage", ("Training", "PublicTest")), ("key", ("train_1", "test_1"))],
)
def test_a_column_that_may_name_splits_and_is_not_read_is_told(table, tmp_path, column, values):
  rows = [f"x/00{i}.jpg,{'ab'[i]},{value}\n" for i, value in enumerate(values)]
  (note,) = table(f"path,label,{column}\n{''.join(rows)}").notes
  assert note.endswith(f"are taken: its column {column!r} is not read.")
  assert sources.named_parts(f"csv:{tmp_path}/list.csv") == {}


def test_labels_are_no_splits(table, tmp_path):
  for header in ("", "path,label\n", "path,kind\n"):
    source = table(f"{header}x/000.jpg,train\nx/001.jpg,tram\n")
    assert source.class_names == ("train", "tram")
    assert "not read" not in str(source.notes)
  source = table("path,category\nx/000.jpg,train\nx/001.jpg,test\n")
  assert source.class_names == ("test", "train")
  assert sources.named_parts(f"csv:{tmp_path}/list.csv") == {}


def test_two_columns_of_splits_are_refused(table, tmp_path):
  text = "path,label,fold,set\nx/000.jpg,a,train,test\nx/001.jpg,a,test,train\n"
  with pytest.raises(SourceError, match="several columns of splits: 'fold', 'set'; call the one"):
    table(text, "[:50%]")
  with pytest.raises(SourceError, match="several columns of splits"):
    sources.named_parts(f"csv:{tmp_path}/list.csv")
  assert len(table(text.replace("fold", "split"), "train")) == 1


def test_the_same_image_is_found_under_another_path(table, tmp_path):
  (tmp_path / "link").symlink_to("x")
  (tmp_path / "y.jpg").symlink_to("x/002.jpg")
  ours = table("link/000.jpg,a\nx/001.jpg,b\ny.jpg,b\n")
  assert datasets.shared_images(ours, open_source(f"folder:{tmp_path}")).images == 3
  assert (
    datasets.shared_images(open_source(f"folder:{tmp_path}"), table("x/003.jpg,a\n")).images == 1
  )
  assert datasets.shared_images(ours, table("x/003.jpg,a\nx/004.jpg,a\n")) is None


def test_paths_may_lead_out_and_rows_may_repeat_which_is_said(table, tmp_path):
  (tmp_path / "in").mkdir()
  (tmp_path / "in/list.csv").write_text("../x/000.jpg,a\n../x/001.jpg,a\n../x/../x/000.jpg,a\n")
  source = open_source(f"csv:{tmp_path}/in/list.csv")
  assert len(source) == 2
  assert "1 rows of" in source.notes[0]
  assert "2 images of" in source.notes[1]
  assert "outside of its folder ('../x/000.jpg')" in source.notes[1]


SPLITS = "path,label,split\nx/000.jpg,a,train\nx/001.jpg,a,test\n"


@pytest.mark.parametrize(
  ("text", "options", "message"),
  [
    ("x/000.jpg,1\nb.jpg\n", {}, r"\['b\.jpg'\] in line 2"),
    ("x/000.jpg,\n", {}, "no label in line 1"),
    ("path,label\n,a\n", {}, "no path in line 2"),
    ("", {}, "names no images"),
    ("path,label\n", {}, "names no images"),
    (",".join("abcdefghij" * 1000), {}, "each line must be the path"),
    ("path,size,hue\nx/000.jpg,1,2\n", {}, "columns .*; call the one with the labels"),
    ("path,front,label\nx/000.jpg,7,a\n", dict(label_key="knd"), r"label_key='knd': .*'front'"),
    ("gone.jpg,ant\nx/001.jpg,bee\n", {}, "1 of 2 images .* in line 1"),
    ('path,label\nx/000.jpg,"an\nant"\n\nx/g.jpg,bee\n', {}, r'1 of 2 .* in line 5: ".*/g\.jpg"'),
    ("x/000.jpg,a\n./x/000.jpg,b\n", {}, "twice: as 'a' in line 1, as 'b' in line 2; remove one"),
    ("x/000.jpg,1|0|0|1\nx/001.jpg,0|1|0|0\n", {}, "row 0 .* has the labels .*multi-hot"),
    ('x/000.jpg,"[1, 0]"\nx/001.jpg,"[0, 1]"\n', {}, r"'\[0, 1\]', which are lists"),
    ("x/000.jpg,1 0\nx/001.jpg,0 1\n", {}, "'0 1', which are lists"),
    ("x/000.jpg,a" + "a" * 200_000, {}, "cannot be read as a CSV file: field larger than"),
    ("x/000.jpg,\xe4\nx/001.jpg,b\n".encode("latin-1"), {}, "not UTF-8 in line 1"),
    (bytes(range(256)) * 9, {}, "is not text in UTF-8"),
    (SPLITS, dict(split="val"), r"no split 'val': .* \['test', 'train'\]"),
  ],
)
def test_wrong_tables(table, text, options, message):
  with pytest.raises(SourceError, match=message) as raised:
    table(text, **options)
  assert len(str(raised.value)) < 600
  assert str(raised.value).isprintable()


BITS = "filename,{}\nx/000.jpg,{}\nx/001.jpg,{}\n"


@pytest.mark.parametrize(
  ("columns", "rows"),
  [
    ("cat, dog", (" 0, 1", " 1, 1")),  # as Roboflow writes it
    ("MEL,NV,split", ("1.0,0.0,train", "0.0,0.0,test")),
    ("cat,dog", ("True,False", "False,True")),
  ],
)
def test_a_column_for_each_class_is_told_to_become_one(table, columns, rows):
  with pytest.raises(ColumnError, match=r"'filename'.* \(multi-hot\)\? .*, \"\|\" between them;"):
    table(BITS.format(columns, *rows))
  assert table(BITS.format(columns, *rows), label_key=columns[:3]).class_names


def test_columns_of_other_numbers_are_not_taken_for_classes(table):
  with pytest.raises(ColumnError, match=r"; call the one with the labels"):
    table(BITS.format("size,hue", "0,1", "2,1"))


def test_a_table_of_windows_is_read(table, tmp_path):
  text = "path,label\nx/000.jpg,ant\nx/001.jpg,bee\n"
  windows = text.replace("/", "\\")
  assert table(windows).identity == table(text).identity
  assert len(table(windows + "x/000.jpg,ant\n")) == 2
  (tmp_path / "x\\000.jpg").write_bytes(b"here")  # such names are allowed elsewhere
  (tmp_path / "x\\001.jpg").write_bytes(b"here")
  assert table(windows)[0].image == b"here"
  with pytest.raises(SourceError, match=r"1 of 2 images .*x/9\.jpg"):
    table("path,label\nx\\002.jpg,a\nx\\9.jpg,b\n")


def test_a_path_in_another_encoding_is_told_unless_it_is_there(table, tmp_path):
  text = "x/000.jpg,a\nx/k\xe4fer.jpg,b\n".encode("cp1252")
  with pytest.raises(SourceError, match=r"a path that is not UTF-8 in line 2; save the table as"):
    table(text)
  (tmp_path / os.fsdecode(b"x/k\xe4fer.jpg")).write_bytes(b"here")
  assert len(table(text)) == 2


def test_a_table_that_is_not_there(tmp_path):
  with pytest.raises(SourceError, match=r"cannot be read as a CSV file: .*No such file"):
    open_source(f"csv:{tmp_path}/none.csv")
