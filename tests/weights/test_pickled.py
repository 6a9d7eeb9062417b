"""Pickled weights are refused, with a line that converts them."""

import re
import shlex

import numpy as np
import pytest

from vit_jax import weights
from vit_jax.config import ConfigError
from vit_jax.weights import pickled, safetensors


@pytest.mark.parametrize(
  ("name", "result"),
  [
    ("w.pth", "w.safetensors"),
    ("a.b.pth.tar", "a.b.safetensors"),
    ("pytorch_model.bin", "model.safetensors"),
  ],
)
def test_the_line_names_what_it_writes(tmp_path, name, result):
  (tmp_path / name).write_bytes(b"\x80\x02.")
  with pytest.raises(ConfigError, match=r"is pickled, .* can run any code\. To convert") as error:
    weights.read(tmp_path / name)
  assert f"{tmp_path / result!s}" in str(error.value)
  assert not pickled.advice(tmp_path / "w.npz")


@pytest.mark.parametrize("inside", ['{"architectures": ["ViTModel"]}', '{"architecture": "x"}'])
def test_a_folder_that_holds_a_pickle(tmp_path, inside):
  (tmp_path / "pytorch_model.bin").write_bytes(b"\x80\x02.")
  (tmp_path / "config.json").write_text(inside)
  with pytest.raises(ValueError, match=r"pytorch_model\.bin is pickled"):
    weights.read(tmp_path)


@pytest.mark.parametrize("wrapped", [True, False])
def test_the_line_converts(tmp_path, wrapped):
  torch = pytest.importorskip("torch", reason="torch is not installed")
  state = {"a": torch.arange(6.0).reshape(2, 3).T}
  torch.save({"model": state, "epoch": 3} if wrapped else state, tmp_path / "it's.pth")
  line = re.search("with torch: (.*)", pickled.advice(tmp_path / "it's.pth"))[1]
  program, flag, code = shlex.split(line)
  assert (program, flag) == ("python", "-c")
  exec(code, {})
  (array,) = safetensors.load_arrays(tmp_path / "it's.safetensors").values()
  np.testing.assert_array_equal(array, state["a"].numpy())
