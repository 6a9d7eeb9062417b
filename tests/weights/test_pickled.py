"""Pickled weights are refused, with a line that converts them."""

import argparse
import re
import shlex
import sys

import numpy as np
import pytest

from vit_jax import weights
from vit_jax.config import ConfigError
from vit_jax.process.text import one_line
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
  assert one_line(str(error.value)) == str(error.value)  # nothing is left out of it or escaped
  assert not pickled.advice(tmp_path / "w.npz")


@pytest.mark.parametrize("inside", ['{"architectures": ["ViTModel"]}', '{"architecture": "x"}'])
def test_a_folder_that_holds_a_pickle(tmp_path, inside):
  (tmp_path / "pytorch_model.bin").write_bytes(b"\x80\x02.")
  (tmp_path / "config.json").write_text(inside)
  with pytest.raises(ValueError, match=r"pytorch_model\.bin is pickled"):
    weights.read(tmp_path)


class Settings:
  """What a trainer stores beside its models; not to be made while the file is read."""

  made = 0

  def __reduce__(self):
    return Settings.make, ()

  @staticmethod
  def make():
    Settings.made += 1
    return {}


def within(prefix, state):
  return {prefix + name: x for name, x in state.items()}


def trainers_files(torch):
  """{trainer: (what its file holds, the key of the model that is taken, all keys)}."""
  plain = {"head.weight": torch.arange(6.0).reshape(2, 3).T, "steps": torch.tensor(3)}
  average = {name: x + 1 for name, x in plain.items()}
  args, moments = argparse.Namespace(lr=0.1), {"exp_avg": plain["head.weight"]}
  optimizer = {"state": {0: moments}, "param_groups": [{"params": [0]}]}
  module = torch.nn.Sequential()
  module.add_module("head", torch.nn.Linear(2, 3, bias=False))
  module.head.weight.data = plain["head.weight"]
  both = dict(state_dict=plain, state_dict_ema=average)
  return {
    "plain": (plain, "", []),
    "an ordered dictionary": (module.state_dict(), "", []),
    "timm": (dict(both, optimizer=optimizer, args=args), "state_dict_ema", [*both]),
    "DeiT": (
      dict(model=plain, model_ema=average, scaler={}, args=args),
      "model_ema",
      ["model", "model_ema"],
    ),
    "MAE": (dict(model=plain, optimizer=optimizer, args=args, other=Settings()), "model", []),
    "DINO": (
      dict(student=within("module.", plain), teacher=average, dino_loss={"center": torch.zeros(2)}),
      "teacher",
      ["student", "teacher"],
    ),
    "Lightning": (dict(state_dict=plain, hyper_parameters=args, loops={}), "state_dict", []),
    "MMEngine": (
      dict(meta=args, state_dict=plain, ema_state_dict=average),
      "ema_state_dict",
      ["state_dict", "ema_state_dict"],
    ),
    "nested": (dict(checkpoint=dict(model=dict(plain)), epoch=3), "checkpoint.model", []),
    "a module": (module, "", []),
    "modules": (dict(model=torch.nn.DataParallel(module), ema=None), "model", []),
  }


def convert(path, monkeypatch, *arguments):
  line = re.search("with torch: (.*)", pickled.advice(path))[1]
  program, flag, code = shlex.split(line)
  assert (program, flag) == ("python", "-c")
  monkeypatch.setattr(sys, "argv", ["-c", *arguments])
  exec(code, {})
  return safetensors.load_arrays(path.with_suffix(".safetensors"))


def test_the_line_converts_and_says_what_it_takes(tmp_path, monkeypatch, capsys):
  torch = pytest.importorskip("torch", reason="torch is not installed")
  for trainer, (content, key, keys) in trainers_files(torch).items():
    path = tmp_path / f"it's {trainer}.pth"
    torch.save(content, path)
    ((name, array),) = convert(path, monkeypatch).items()
    averaged = "ema" in key or "teacher" in key
    assert name in ("head.weight", "module.head.weight"), trainer
    np.testing.assert_array_equal(array, np.arange(6.0).reshape(2, 3).T + averaged)
    said = capsys.readouterr().out
    assert f" has {key or 'the model'} of " in said
    assert ("To take another one" in said) == averaged
    if averaged:
      assert f"It has {', '.join(keys)}. To take" in said
  assert Settings.made == 0


def test_the_line_takes_the_model_that_is_named(tmp_path, monkeypatch):
  torch = pytest.importorskip("torch", reason="torch is not installed")
  path = tmp_path / "w.pth"
  torch.save(trainers_files(torch)["DINO"][0], path)
  for key, name in {"student": "module.head.weight", "student.module": "head.weight"}.items():
    ((found, array),) = convert(path, monkeypatch, key).items()
    assert (found, array[1, 0]) == (name, 1)
  torch.save(within("teacher.", {"head.weight": torch.ones(2)}), path)
  assert convert(path, monkeypatch, "teacher").keys() == {"head.weight"}
  torch.save(trainers_files(torch)["DINO"][0], path)
  with pytest.raises(SystemExit, match=r"has no model called 'ema'\. It has student, teacher\."):
    convert(path, monkeypatch, "ema")


def test_the_line_runs_no_code_of_the_file(tmp_path, monkeypatch):
  torch = pytest.importorskip("torch", reason="torch is not installed")
  for legacy in (True, False):
    path = tmp_path / f"{legacy}.pth"
    content = {"model": {"a.weight": torch.ones(2)}, "args": Settings()}
    torch.save(content, path, _use_new_zipfile_serialization=not legacy)
    assert convert(path, monkeypatch).keys() == {"a.weight"}
  assert Settings.made == 0
