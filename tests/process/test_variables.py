"""Variables that decide numbers, or with which a library would end the program, are refused."""

import os
import subprocess
import sys

import jax
import pytest

from tests import programs
from vit_jax.config import ConfigError
from vit_jax.process import program

CHANGED = {
  "jax_enable_x64": True,
  "jax_disable_jit": True,
  "jax_numpy_dtype_promotion": "strict",
  "jax_numpy_rank_promotion": "raise",
  "jax_default_prng_impl": "rbg",
  "jax_threefry_partitionable": False,
  "jax_random_seed_offset": 5,
}


@pytest.mark.parametrize(("name", "value"), CHANGED.items())
def test_settings_of_jax_that_change_numbers_are_refused(monkeypatch, name, value):
  before = jax.config.values[name]
  before = getattr(before, "value", before)
  program.check_jax()
  jax.config.update(name, value)
  try:
    with pytest.raises(ConfigError, match=rf"jax\.config\.{name} is {value!r}"):
      program.check_jax()
    monkeypatch.setenv(name.upper(), str(value))
    with pytest.raises(ConfigError, match=rf"^{name.upper()}={value} "):
      program.check_variables()
  finally:
    jax.config.update(name, before)
  program.check_jax()


def test_every_setting_that_is_refused_is_one_of_jax():
  there = {name for name in program.FIXED if name in jax.config.values}
  assert there >= program.FIXED.keys() - {"eager_constant_folding"}  # older versions lack it


def ended(code, env):
  """The last line of stderr of a tool that refuses to begin."""
  code = f"from vit_jax.config.tool_flags import ending\nwith ending('tool'): {code}"
  command = [sys.executable, "-c", code]
  result = subprocess.run(command, env=env, cwd=programs.ROOT, capture_output=True, text=True)
  assert result.returncode == 2, result.stderr
  assert "Traceback" not in result.stderr
  *before, last = result.stderr.splitlines()
  assert last.startswith("tool: ")
  return before, last


@pytest.mark.parametrize(
  ("name", "value", "cause"),
  [
    ("XLA_FLAGS", "--xla_bananas=3", "Unknown flag"),
    ("XLA_FLAGS", "--xla_cpu_enable_fast_math=maybe", "value maybe"),
    ("JAX_ENABLE_X64", "banana", "invalid truth value"),
    ("PYTHONWARNINGS", "error", "Warnings of libraries"),
  ],
)
def test_what_ends_a_library_is_said_in_one_sentence(name, value, cause):
  before, said = ended("pass", os.environ | {"XLA_FLAGS": ""} | {name: value})
  assert not before
  assert f"{name}={value}" in said
  assert cause in said


@pytest.mark.parametrize(
  ("name", "value"),
  [("JAX_PLATFORMS", "banana"), ("JAX_PLATFORMS", "cuda"), ("JAX_NUM_CPU_DEVICES", "0")],
)
def test_devices_that_are_not_there(name, value):
  # Without the compilers that lie apart: where they are found, JAX logs why the device is not.
  env = programs.environment(PYTHONPATH="") | {name: value}
  _, said = ended("import jax; jax.devices()", env)
  assert said.startswith("tool: JAX cannot use its devices")
  assert f"{name}={value}" in said


def test_errors_that_are_not_of_devices_stay_as_they_are():
  for error in (AssertionError("x"), RuntimeError("Unable to read")):
    with pytest.raises(type(error)) as caught, program.said_of_devices():
      raise error
    assert caught.value is error


def test_variables_of_one_machine_do_not_decide_numbers():
  flags = "--xla_b=1 --xla_dump_to=/x --xla_a=2 --xla_force_host_platform_device_count=4"
  given = {
    "XLA_FLAGS": flags,
    "JAX_COMPILATION_CACHE_DIR": "/x",
    "JAX_LOG_COMPILES": "1",
    "JAX_DEFAULT_MATMUL_PRECISION": "float32",
  }
  shared = {"XLA_FLAGS": "--xla_a=2 --xla_b=1", "JAX_DEFAULT_MATMUL_PRECISION": "float32"}
  assert program.deciding(given) == shared
  assert program.deciding({"XLA_FLAGS": "--xla_dump_to=/x"}) == {}


@pytest.fixture
def of_google(tmp_path):
  """A folder with the package of google-research/vision_transformer."""
  package = tmp_path / "vit_jax"
  package.mkdir()
  for name in ("__init__.py", "input_pipeline.py"):
    (package / name).touch()
  return tmp_path


def test_another_package_of_this_name_is_told(of_google, monkeypatch, caplog):
  program.check_libraries()
  assert not caplog.messages
  monkeypatch.syspath_prepend(of_google)
  program.check_libraries()
  assert f"{of_google / 'vit_jax'} is the package of google-research" in caplog.text


def test_the_command_tells_of_another_package_that_is_found_first(of_google):
  command = [sys.executable, "-c", "import vit_jax_console; vit_jax_console.run()", "--help"]
  where = programs.environment(PYTHONPATH=f"{of_google}{os.pathsep}{programs.ROOT}")
  result = subprocess.run(command, capture_output=True, text=True, env=where, cwd=of_google)
  assert result.returncode == 1
  assert result.stderr.startswith("vit-jax: Python finds another package vit_jax, in ")
  assert str(of_google / "vit_jax") in result.stderr
