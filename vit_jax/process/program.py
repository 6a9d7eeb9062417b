"""What this program is: its code, the versions of its libraries, and environment variables.

Variables and settings of JAX with which it cannot compute as it should are refused.
"""

import contextlib
import functools
import hashlib
import importlib.metadata
import logging
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import traceback
from collections.abc import Iterable, Iterator

from vit_jax.process.errors import ConfigError
from vit_jax.process.text import one_line, quoted

_log = logging.getLogger(__name__)

PACKAGES = (
  *("vit_jax", "jax", "jaxlib", "flax", "optax", "tensorstore", "numpy"),
  *("opencv-python-headless", "pillow", "libtpu", "jax-cuda12-plugin", "jax-cuda13-plugin"),
)
PREFIXES = ("JAX_", "XLA_", "LIBTPU_INIT_ARGS", "TPU_", "NVIDIA_TF32", "CUBLAS_", "CUDNN_", "NCCL_")
# Variables that differ between machines or processes: file locations, logging, devices.
LOCAL = (
  *("JAX_COMPILATION_CACHE", "JAX_PERSISTENT_CACHE", "JAX_LOG", "JAX_DEBUG_LOG", "JAX_DUMP"),
  *("JAX_TRACEBACK", "JAX_COORDINATOR", "JAX_LOCAL_DEVICE_IDS", "JAX_CUDA_VISIBLE_DEVICES"),
  *("JAX_PARTITION_INDEX", "JAX_SLICE_INDEX"),
  *("JAX_ROCM_VISIBLE_DEVICES", "TPU_", "NCCL_", "JAX_CROSS_HOST_TRANSFER_SOCKET_ADDRESS"),
)
LOCAL_FLAGS = ("--xla_dump", "--xla_force_host_platform_device_count")
OF_PLUGIN = "the code of "  # and its module, in a fingerprint
GIT_SECONDS = 5


def versions() -> dict[str, str]:
  """The version of Python and of each package that is installed."""
  installed = {"python": platform.python_version()}
  for name in PACKAGES:
    try:
      installed[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
      continue
  return installed


def variables() -> dict[str, str]:
  """The environment variables that are set and that JAX, XLA or the libraries of devices read."""
  return {key: value for key, value in sorted(os.environ.items()) if key.startswith(PREFIXES)}


def deciding(given: dict[str, str]) -> dict[str, str]:
  """The `variables` that can change numbers; the flags of XLA are sorted."""
  shared = {key: value for key, value in given.items() if not key.startswith(LOCAL)}
  for key in ("XLA_FLAGS", "LIBTPU_INIT_ARGS"):
    flags = [flag for flag in shared.get(key, "").split() if not flag.startswith(LOCAL_FLAGS)]
    shared[key] = " ".join(sorted(flags))
  return {key: value for key, value in shared.items() if value}


def fingerprint(plugins: Iterable[str] = ()) -> dict[str, str]:
  """Everything that decides the numbers that this program computes, except settings and data.

  Args:
    plugins: the names of modules that belong to the program.
  """
  own = {f"{OF_PLUGIN}{name}": of_module(name) for name in plugins}
  return {"the code": code()} | own | versions() | deciding(variables())


def of_module(name: str) -> str:
  """A checksum of the sources of a module or package; "" if it has no file, or is not imported."""
  file = getattr(sys.modules.get(name), "__file__", None)
  if not file:
    return ""
  file = pathlib.Path(file)
  if file.stem == "__init__":
    return of_sources(file.parent, file.parent.rglob("*.py"))
  return of_sources(file.parent, [file])


@functools.cache
def code() -> str:
  """A checksum of this package's sources."""
  folder = pathlib.Path(__file__).resolve().parents[1]
  return of_sources(folder, folder.rglob("*.py"))


def of_sources(folder: pathlib.Path, files: Iterable[pathlib.Path]) -> str:
  """A checksum of files: their contents, and their names below a folder."""
  digest = hashlib.sha256()
  for path in sorted(files):
    digest.update(f"{path.relative_to(folder)}\0".encode() + path.read_bytes() + b"\0")
  return digest.hexdigest()[:16]


def revision() -> str:
  """The git revision of this code, followed by "-dirty" if files were changed; "" if not known."""
  file = pathlib.Path(__file__).resolve()
  git = ["git", "-C", str(file.parent)]
  # An installed copy may lie inside the repository of another project, which does not track it.
  if not output([*git, "ls-files", "--", file.name]):
    return ""
  return output([*git, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"])


def output(command: list[str]) -> str:
  """The output of a command; "" if it fails or is not installed."""
  try:
    done = subprocess.run(command, capture_output=True, text=True, timeout=GIT_SECONDS)
  except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
    return ""
  if done.returncode != 0:
    return ""
  return done.stdout.strip()


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
_OF_GOOGLE = "input_pipeline.py"  # in their package, not in this one
_OPENS_DEVICES = "xla_bridge.py"  # of JAX
_SAME_BITS = re.compile(r"--xla_gpu_(deterministic|exclude_nondeterministic)_ops(=true|=1)?(\s|$)")
_PARSE = "from jaxlib import xla_client; xla_client.CompileOptions()"


def check_variables():
  """As `check_libraries` and, where a variable of JAX is set, `check_jax`."""
  check_libraries()
  if _set("JAX_", "EAGER_"):
    check_jax()


def check_libraries():
  """Refuses variables with which a library ends this program, or cannot be imported.

  Warns if another package is named vit_jax. Imports JAX only if one of its variables is set.

  Raises:
    ConfigError: names the variable and its value.
  """
  if "error" in [option.partition(":")[0] for option in sys.warnoptions]:
    given = _in_words("PYTHONWARNINGS") or "python -W error"
    raise ConfigError(f"Warnings of libraries would end this program ({given}); unset it.")
  _check_xla_flags()
  if other := _other_package():
    _log.warning(
      "%s is the package of google-research/vision_transformer, which has the name of this one; "
      "which of them Python imports depends on the folder and on PYTHONPATH: give each an "
      "environment of its own.",
      other,
    )
  if _set("JAX_", "EAGER_"):
    _check_import()


def _other_package() -> str:
  """The folder of google-research/vision_transformer's package, if Python finds it; "" if not."""
  for folder in sys.path:
    package = os.path.join(folder or ".", "vit_jax")
    if os.path.isfile(os.path.join(package, _OF_GOOGLE)):
      return package
  return ""


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


def own_command() -> str:
  """How a shell in the current folder calls vit-jax as it is installed beside this Python.

  It is the name alone if the shell finds that one; if there is none, Python runs the module.
  """
  script = pathlib.Path(sys.executable).with_name("vit-jax")
  found = shutil.which("vit-jax")
  if found and os.path.realpath(found) == os.path.realpath(script):
    return "vit-jax"
  if not script.is_file():
    return f"{quoted(sys.executable)} -m vit_jax.extras.commands.main"
  if script.is_relative_to(pathlib.Path.cwd()):
    script = script.relative_to(pathlib.Path.cwd())
  return quoted(script)


def same_bits_on_gpus() -> bool:
  """Whether XLA_FLAGS ask the kernels of GPUs for the same bits each time."""
  return bool(_SAME_BITS.search(os.environ.get("XLA_FLAGS", "")))


def _set(*prefixes: str) -> dict[str, str]:
  return {key: value for key, value in os.environ.items() if key.startswith(prefixes)}


def _in_words(*prefixes: str) -> str:
  return ", ".join(f"{key}={value}" for key, value in sorted(_set(*prefixes).items()))
