"""Files of features hold what was written, and nothing if the work fails."""

import tempfile

import numpy as np
import pyarrow.parquet as pq
import pytest

from vit_jax.extras.probes import feature_files


def rows(count, shape):
  rng = np.random.default_rng(0)
  for i in range(count):
    yield f"{i} \udce4", rng.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("count", [0, 7])
@pytest.mark.parametrize("shape", [(5,), (2, 3, 4)])
def test_both_formats(tmp_path, count, shape, monkeypatch):
  monkeypatch.setattr(feature_files, "GROUP", 3)
  facts = {"source": "w.npz"}
  wanted = [array for _, array in rows(count, shape)]
  for name in ("a.npz", "a.parquet"):
    assert feature_files.write(tmp_path / name, rows(count, shape), shape, facts) == count
  with np.load(tmp_path / "a.npz") as archive:
    stored = dict(archive)
  assert stored["features"].shape == (count, *shape)
  assert stored["features"].tolist() == [array.tolist() for array in wanted]
  assert stored["names"].tolist() == [f"{i} \\udce4" for i in range(count)]
  assert str(stored["source"]) == "w.npz"
  table = pq.read_table(tmp_path / "a.parquet")
  assert table.schema.metadata[b"shape"].decode() == str(list(shape))
  assert table["path"].to_pylist() == [f"{i} \\udce4" for i in range(count)]
  assert table["features"].to_pylist() == [array.ravel().tolist() for array in wanted]


def test_room_is_taken_where_the_file_is_written(tmp_path, monkeypatch):
  monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "full"))
  assert feature_files.write(tmp_path / "a.npz", rows(2, (5,)), (5,), {}) == 2


def test_a_failure_leaves_the_old_file(tmp_path):
  (tmp_path / "a.npz").write_text("old")

  def failing():
    yield "x", np.zeros(3, np.float32)
    raise ValueError("broken")

  with pytest.raises(ValueError, match="broken"):
    feature_files.write(tmp_path / "a.npz", failing(), (3,), {})
  assert [path.name for path in tmp_path.iterdir()] == ["a.npz"]
  assert (tmp_path / "a.npz").read_text() == "old"
