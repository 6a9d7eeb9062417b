"""Pickled weights are refused, with a line that converts them."""

import argparse
import io
import os
import re
import shlex
import zipfile

import numpy as np
import pytest

from vit_jax import weights
from vit_jax.config import ConfigError
from vit_jax.extras.commands import convert_pickle
from vit_jax.extras.formats import pickled
from vit_jax.weights import safetensors


@pytest.mark.parametrize(
  ("name", "result"),
  [
    ("w.pth", "w.safetensors"),
    ("a.b.pth.tar", "a.b.safetensors"),
    ("pytorch_model.bin", "model.safetensors"),
    ("open_clip_pytorch_model.bin", "open_clip_model.safetensors"),
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


def test_a_folder_of_open_clip_that_holds_pickles(tmp_path):
  (tmp_path / "open_clip_config.json").write_text('{"model_cfg": {"vision_cfg": {}}}')
  with pytest.raises(ValueError, match=r"it has no open_clip_model\.safetensors"):
    weights.read(tmp_path)
  for name in ("pytorch_model.bin", "open_clip_pytorch_model.bin"):
    (tmp_path / name).write_bytes(b"\x80\x02.")
  with pytest.raises(ValueError, match=r"--output .*/open_clip_model\.safetensors"):
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


def convert(path, *arguments):
  line = re.search("with torch: (.*)", pickled.advice(path))[1]
  words = shlex.split(line)
  assert words[:2] == ["vit-jax", "convert-pickle"]
  convert_pickle.main([*words[2:], *arguments])
  return safetensors.load_arrays(path.with_suffix(".safetensors"))


def test_the_line_converts_and_says_what_it_takes(tmp_path, capsys):
  torch = pytest.importorskip("torch", reason="torch is not installed")
  for trainer, (content, key, keys) in trainers_files(torch).items():
    path = tmp_path / f"it's {trainer}.pth"
    torch.save(content, path)
    ((name, array),) = convert(path).items()
    averaged = "ema" in key or "teacher" in key
    assert name in ("head.weight", "module.head.weight"), trainer
    np.testing.assert_array_equal(array, np.arange(6.0).reshape(2, 3).T + averaged)
    said = capsys.readouterr().out
    assert f" has {key or 'the model'} of " in said
    others = ", ".join(name for name in keys if name != key)
    assert (f"Other models in it: {others} (--model)." in said) == averaged
  assert Settings.made == 0


def test_the_line_takes_the_model_that_is_named(tmp_path, capsys):
  torch = pytest.importorskip("torch", reason="torch is not installed")
  path = tmp_path / "w.pth"
  torch.save(trainers_files(torch)["DINO"][0], path)
  for key, name in {"student": "module.head.weight", "student.module": "head.weight"}.items():
    ((found, array),) = convert(path, "--model", key).items()
    assert (found, array[1, 0]) == (name, 1)
  torch.save(within("teacher.", {"head.weight": torch.ones(2)}), path)
  assert convert(path, "--model=teacher").keys() == {"head.weight"}
  torch.save(trainers_files(torch)["DINO"][0], path)
  with pytest.raises(SystemExit) as left:
    convert(path, "--model=ema")
  assert left.value.code == 2
  assert "has no model 'ema'; it has student, teacher." in capsys.readouterr().err


def test_the_line_runs_no_code_of_the_file(tmp_path):
  torch = pytest.importorskip("torch", reason="torch is not installed")
  for legacy in (True, False):
    path = tmp_path / f"{legacy}.pth"
    content = {"model": {"a.weight": torch.ones(2)}, "args": Settings()}
    torch.save(content, path, _use_new_zipfile_serialization=not legacy)
    assert convert(path).keys() == {"a.weight"}
  assert Settings.made == 0


def failing(path, capsys, *arguments):
  """What the command says when it ends with an error."""
  with pytest.raises(SystemExit) as left:
    convert(path, *arguments)
  assert left.value.code
  return capsys.readouterr().err


def test_what_holds_no_model_is_said(tmp_path, capsys):
  torch = pytest.importorskip("torch", reason="torch is not installed")
  path = tmp_path / "w.pth"
  dense = torch.eye(2)
  for content, message in (
    ({"epoch": 1}, "The file holds no model: no dictionary in it has the names of layers."),
    ([{"a.weight": dense}], "The file holds no model"),
    ({"model": {"a.bias": dense, "a.weight": dense.to_sparse()}}, "a.weight is no plain tensor"),
  ):
    torch.save(content, path)
    assert message in failing(path, capsys)


def test_one_of_several_models_in_a_converted_file_can_be_taken(tmp_path):
  torch = pytest.importorskip("torch", reason="torch is not installed")
  both = {"student.a.weight": torch.ones(2), "teacher.a.weight": torch.zeros(2)}
  torch.save(both, tmp_path / "both.pth")
  assert convert(tmp_path / "both.pth").keys() == both.keys()
  output = tmp_path / "student.safetensors"
  source = ["--source", str(tmp_path / "both.safetensors"), "--output", str(output)]
  convert_pickle.main([*source, "--model=student"])
  assert (safetensors.load_arrays(output)["a.weight"] == 1).all()


def refused(capsys, *arguments):
  """What the command says of wrong usage."""
  with pytest.raises(SystemExit) as left:
    convert_pickle.main(list(map(str, arguments)))
  assert left.value.code == 2
  return capsys.readouterr().err


@pytest.mark.parametrize("name", ["w.pth", "other.npz", "w"])
def test_the_output_is_a_safetensors_file(tmp_path, capsys, name):
  torch = pytest.importorskip("torch", reason="torch is not installed")
  source, output = tmp_path / "w.pth", tmp_path / name
  torch.save({"a.weight": torch.ones(2)}, source)
  said = refused(capsys, "--source", source, "--output", output)
  assert f"--output {output} must end in .safetensors" in said
  assert os.listdir(tmp_path) == ["w.pth"]
  assert torch.load(source)["a.weight"].sum() == 2


def test_the_output_is_not_the_source(tmp_path, capsys):
  """The models that are not taken would be lost."""
  torch = pytest.importorskip("torch", reason="torch is not installed")
  both = {"student.a.weight": torch.ones(2), "teacher.a.weight": torch.zeros(2)}
  torch.save(both, tmp_path / "both.pth")
  convert(tmp_path / "both.pth")
  source, link = tmp_path / "both.safetensors", tmp_path / "link.safetensors"
  link.symlink_to(source)
  for output in (source, link):
    said = refused(capsys, "--source", source, "--output", output, "--model=student")
    assert f"--output {output} is --source; give another name." in said
  assert safetensors.load_arrays(source).keys() == both.keys()


def test_what_is_no_file_of_torch(tmp_path, capsys):
  pytest.importorskip("torch", reason="torch is not installed")
  for content in (b"", b"no pickle", b"\x80\x02.", b"\x80\x04cos\nsystem\n."):
    path = tmp_path / "w.pth"
    path.write_bytes(content)
    with pytest.raises(SystemExit) as left:
      convert(path)
    assert left.value.code in (1, 2)
    assert capsys.readouterr().err.count("\n") == 1


# eval("Settings.made") by the names of allowed functions, whose attributes reach the built-ins.
REACHES_BUILTINS = (
  b"\x80\x04\x8c\x0bcollections\x8c\x0fOrderedDict.get\x93"
  b"\x8c\x0ctorch._utils\x8c\x1e_rebuild_tensor_v2.__globals__\x93\x8c\x0c__builtins__\x86R."
)


@pytest.mark.parametrize(
  "data",
  [
    REACHES_BUILTINS,
    b"\x80\x04\x8c\x0ctorch._utils\x8c\x1e_rebuild_tensor_v2.__globals__\x93.",
    b"ctorch._utils\n_rebuild_device_tensor_from_numpy\n.",
    b"ctorch\nTensorBase\n.",
    b"cbuiltins\neval\n.",
  ],
)
def test_a_name_that_makes_no_tensor_is_a_stand_in(data):
  made = convert_pickle.Reader(io.BytesIO(data)).load()
  assert isinstance(made, convert_pickle.Inert) or made is convert_pickle.Inert


def test_a_program_of_torchscript_is_not_loaded(tmp_path, capsys):
  torch = pytest.importorskip("torch", reason="torch is not installed")
  with zipfile.ZipFile(tmp_path / "w.pt", "w") as archive:
    archive.writestr("w/constants.pkl", b"")
  with pytest.raises(SystemExit) as left:
    convert(tmp_path / "w.pt")
  assert left.value.code == 1
  assert "is a program of TorchScript" in capsys.readouterr().err
  inside = dict(class_weight=torch.ones(2), model={"a.weight": torch.ones(2)})
  torch.save(inside | dict(semantic_head={"b.weight": torch.ones(3)}), tmp_path / "w.pth")
  assert convert(tmp_path / "w.pth").keys() == {"a.weight"}
