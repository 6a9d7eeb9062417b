"""JSON files of strangers are read with bounds, and never wait."""

import os

import pytest

from vit_jax.storage import files


@pytest.mark.parametrize(
  ("content", "message"),
  [
    (b"{", "Expecting"),
    (b"\xff", "decode"),
    (b"[" * 100_000, "nested too deeply"),
    (b"[1]", "not a JSON object"),
    (b'"text"', "not a JSON object"),
  ],
)
def test_what_is_no_json_object(tmp_path, content, message):
  path = tmp_path / "x.json"
  path.write_bytes(content)
  with pytest.raises(ValueError, match=message):
    files.read_json(path, most=10**6)


def test_what_cannot_be_read(tmp_path):
  path = tmp_path / "x.json"
  path.write_text('{"a": 1}')
  assert files.read_json(path, most=8) == {"a": 1}
  with pytest.raises(OSError, match="larger than 7 bytes"):
    files.read_json(path, most=7)
  os.mkfifo(tmp_path / "pipe")
  with pytest.raises(OSError, match="It is a FIFO"):
    files.read_json(tmp_path / "pipe", most=8)
