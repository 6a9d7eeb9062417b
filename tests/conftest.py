"""Eight simulated devices on the CPU for every test, exact float32 matmuls, quick compilation."""

import gc
import os
import sys

from tests import turns
from tests.compiler import KEPT, QUICK

os.environ["XLA_FLAGS"] = QUICK
os.environ |= KEPT
os.environ["JAX_PLATFORMS"] = "cpu"  # also where libtpu is installed
# Enough threads for all devices to wait in as many collectives at once (see tests/programs.py).
os.environ["PJRT_NPROC"] = "16"
# Idle threads of PyTorch, scikit-learn and NumPy spin, which slows the other tests.
os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}

import hypothesis
import jax  # reads the flags above
import pytest

pytest_plugins = ["tests.selection"]  # which part of the tests runs
gc.set_threshold(100_000, 20, 100)  # imports and tracing make much that lives
TURN = turns.taken()

# Files that take longest, first, so that no worker is left alone with one of them at the end.
SLOWEST = (
  "test_walk.py",
  "test_several_hosts.py",
  "test_faults.py",
  "test_train_step.py",
  "test_gpus.py",
  "test_compilation.py",
  "test_families.py",
  "test_loop.py",
  "test_timm.py",
  "test_storage.py",
  "test_flagship.py",
)

# The same examples in each run, so that a failure belongs to the commit that it is seen on;
# --hypothesis-profile=drawn draws others. How long one takes depends on what else the machine does.
_ANY_SPEED = {"deadline": None, "suppress_health_check": [hypothesis.HealthCheck.too_slow]}
hypothesis.settings.register_profile("same", derandomize=True, **_ANY_SPEED)
hypothesis.settings.register_profile("drawn", **_ANY_SPEED)
hypothesis.settings.load_profile("same")

jax.config.update("jax_num_cpu_devices", 8)
jax.config.update("jax_default_matmul_precision", "highest")


def pytest_addoption(parser):
  """The options of `make torture` and `make gpu`."""
  parser.addoption("--torture", action="store_true", help="all cases of tests/torture, not a few")
  parser.addoption("--gpu", action="store_true", help="all programs for GPUs, not a few")


def pytest_collection_modifyitems(items):
  """Puts the tests of the longest files first; those of a file stay together."""
  place = {name: i for i, name in enumerate(SLOWEST)}
  items.sort(key=lambda item: place.get(item.path.name, len(SLOWEST)))
  gc.freeze()  # so that no collection goes through all that was imported
  turns.given_up(TURN)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol():
  """Restores sys.path: commands that compile for other devices add the folders of the compilers."""
  path = [*sys.path]
  try:
    return (yield)
  finally:
    sys.path[:] = path


@pytest.fixture
def one_device(monkeypatch):
  """One device instead of eight, for runs of which it does not matter: half as much to compile."""
  only = jax.devices()[:1]
  monkeypatch.setattr(jax, "devices", lambda *_: only)


@pytest.fixture(scope="session")
def tiny_run(tmp_path_factory):
  """The workdir of a run of five steps on the digits, with a moving average; not to be changed."""
  from tests import tiny_run  # imports the package, which no test without a run needs

  return tiny_run.train(tmp_path_factory.mktemp("tiny_run"))
