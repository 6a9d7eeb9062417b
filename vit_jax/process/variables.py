"""Refuses environment variables and settings of JAX that would make this program go wrong."""

import contextlib
import os
import re
import subprocess
import sys
import traceback
from collections.abc import Iterator

from vit_jax.process.errors import ConfigError
from vit_jax.process.text import one_line

# Other values give other numbers, or end in an error inside a library.
FIXED = {
  "jax_enable_x64": False,
  "jax_disable_jit": False,
  "jax_numpy_dtype_promotion": "standard",
  "jax_numpy_rank_promotion": "allow",
  "jax_default_prng_impl": "threefry2x32",
  "jax_threefry_partitionable": True,
  "jax_random_seed_offset": 0,
  "jax_default_device": None,
  "jax_no_tracing": False,
  "jax_no_execution": False,
  "jax_error_checking_behavior_nan": "ignore",
  "jax_error_checking_behavior_divide": "ignore",
  "jax_error_checking_behavior_oob": "ignore",
  "eager_constant_folding": False,
}
_OPENS_DEVICES = "xla_bridge.py"  # of JAX
_SAME_BITS = re.compile(r"--xla_gpu_(deterministic|exclude_nondeterministic)_ops(=true|=1)?(\s|$)")
_PARSE = "from jaxlib import xla_client; xla_client.CompileOptions()"


def check():
  """As `check_libraries` and, where a variable of JAX is set, `check_jax`."""
  check_libraries()
  if _set("JAX_", "EAGER_"):
    check_jax()


def check_libraries():
  """Refuses variables with which a library ends this program, or cannot be imported.

  Imports JAX only if one of its variables is set.

  Raises:
    ConfigError: names the variable and its value.
  """
  if "error" in [option.partition(":")[0] for option in sys.warnoptions]:
    given = _in_words("PYTHONWARNINGS") or "python -W error"
    raise ConfigError(f"Warnings of libraries would end this program ({given}); unset it.")
  _check_xla_flags()
  if _set("JAX_", "EAGER_"):
    _check_import()


def check_jax():
  """Refuses settings of JAX other than `FIXED`, whether variables or a program set them.

  Raises:
    ConfigError: names the setting and its value.
  """
  import jax

  for name, wanted in FIXED.items():
    value = jax.config.values.get(name, wanted)
    value = getattr(value, "value", value)  # of an enumeration
    if value == wanted:
      continue
    if name.upper() in os.environ:
      raise ConfigError(
        f"{name.upper()}={os.environ[name.upper()]} would change the numbers, or end in an error; "
        "unset it."
      )
    raise ConfigError(
      f"jax.config.{name} is {value!r}, which would change the numbers or end in an error; set it "
      f"to {wanted!r}."
    )


def _check_import():
  try:
    import jax  # noqa: F401
  except ValueError as error:
    raise ConfigError(
      f"JAX cannot be imported: {error}; correct or unset the variable ({_in_words('JAX_')})."
    ) from error


def _check_xla_flags():
  """Reads XLA's flags in another process first, because XLA ends a process that has a wrong flag.

  Skipped if this program has loaded XLA already.
  """
  if not _set("XLA_FLAGS") or "jaxlib" in sys.modules:
    return
  tried = subprocess.run([sys.executable, "-c", _PARSE], capture_output=True, text=True)
  if tried.returncode:
    lines = tried.stderr.splitlines()
    causes = [line.partition("] ")[2] for line in lines if line[:2] in ("E0", "E1", "F0", "F1")]
    raise ConfigError(
      f"XLA does not take {_in_words('XLA_FLAGS')}: {one_line((causes or lines or [''])[0])}; "
      "correct or unset it."
    )


@contextlib.contextmanager
def said_of_devices() -> Iterator[None]:
  """Turns JAX's errors about devices that it cannot use into one sentence.

  Raises:
    ConfigError: in place of such an error.
  """
  try:
    yield
  except (RuntimeError, AssertionError) as error:
    said = str(error).partition(" (")[0].rstrip(".")
    if not said.startswith(("Unable to initialize backend", "Unknown backend")):
      frames = traceback.extract_tb(error.__traceback__)
      if not isinstance(error, AssertionError) or not frames[-1].filename.endswith(_OPENS_DEVICES):
        raise
      said = "none of this kind is there"  # JAX asserts that it has found one
    given = _in_words("JAX_PLATFORM", "JAX_NUM_CPU_DEVICES")
    remedy = f"correct or unset {given}" if given else "install JAX for these devices"
    raise ConfigError(f"JAX cannot use its devices: {said}; {remedy}.") from error


def same_bits_on_gpus() -> bool:
  """Whether XLA_FLAGS ask the kernels of GPUs for the same bits each time."""
  return bool(_SAME_BITS.search(os.environ.get("XLA_FLAGS", "")))


def _set(*prefixes: str) -> dict[str, str]:
  return {key: value for key, value in os.environ.items() if key.startswith(prefixes)}


def _in_words(*prefixes: str) -> str:
  return ", ".join(f"{key}={value}" for key, value in sorted(_set(*prefixes).items()))
