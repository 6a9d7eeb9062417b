"""Runs and tools whose stdout or stderr is closed, full or broken; and signals that they hear."""

import socket
import subprocess
import sys

import pytest

from tests import programs

# All ways to the console that Python has; and the number of the next file that is opened.
SPEAKS = """
import faulthandler, logging, os, sys, warnings
from vit_jax.process import console
console.{kind}()
from absl import logging as absl_logging
import tqdm
for i in range(3):
  print("shown", "x" * 10000, flush=bool(i))
  print("to stderr \\udcff \\u00b2", file=sys.stderr)
  warnings.warn("warned")
  logging.warning("logged")
  absl_logging.warning("logged")
  list(tqdm.tqdm(range(2)))
faulthandler.dump_traceback()
os.system("echo from a child")
number = os.open(os.devnull, os.O_RDONLY)
sys.exit(number if number < 3 else 0)
"""
ENDS = {
  "whole": "> /dev/null 2>&1",
  "full": "> /dev/full 2> /dev/full",
  "closed": ">&- 2>&-",
  "all closed": "<&- >&- 2>&-",
  "broken": "2>&1 | true",
}


def shell(command):
  """Runs a line of bash; the exit status is that of its first program."""
  return subprocess.run(
    ["bash", "-c", f"{command}; exit ${{PIPESTATUS[0]}}"],
    cwd=programs.ROOT,
    env=programs.environment(),
    capture_output=True,
    text=True,
    timeout=120,
  )


@pytest.mark.parametrize("end", ENDS)
def test_a_run_goes_on_whatever_becomes_of_the_console(tmp_path, end):
  (tmp_path / "speaks.py").write_text(SPEAKS.format(kind="set_up"))
  result = shell(f"PYTHONPATH=. {sys.executable} {tmp_path}/speaks.py {ENDS[end]}")
  assert result.returncode == 0, result.stderr


@pytest.fixture
def tool(tmp_path):
  """A command that prints much, as tools/*.py do."""
  printing = "from vit_jax.process import console\nconsole.of_tool()\nprint('model\\n' * 100_000)\n"
  (tmp_path / "cost.py").write_text(printing)
  return f"PYTHONPATH=. {sys.executable} {tmp_path}/cost.py"


def test_a_tool_whose_stdout_is_full_or_closed_has_failed(tool):
  for end, reason in (("> /dev/full", "No space left on device"), (">&-", "Bad file descriptor")):
    result = shell(f"{tool} {end}")
    assert result.returncode == 1
    assert result.stderr == f"cost: stdout cannot be written to ({reason}).\n"


def test_a_tool_whose_reader_has_seen_enough_ends_in_silence(tool):
  result = shell(f"{tool} | head -1")
  assert result.stdout.startswith("model")
  assert result.stderr == ""


HOSTILE = """
import logging, sys
from vit_jax.process import console
console.{kind}()
from absl import logging as absl_logging
import tqdm
name = "cat\\x1b]0;title\\x07\\u202e\\rvit_jax: Done\\x1b[2K"
print("two\\nlines", name)
print(name, file=sys.stderr)
print(f"\\r\\x1b[K{{name}}\\x1b[K")
logging.warning("%s", name + "\\nvit_jax: Done")
absl_logging.warning("Broken image: %s", name + "\\nvit_jax: Done")
logging.getLogger("jax._src.x").error("no %s", "devices")
logging.getLogger("jax").info("not shown")
list(tqdm.tqdm(range(2), desc=name))
"""


@pytest.mark.parametrize("kind", ["set_up", "of_tool"])
def test_what_is_printed_or_logged_does_not_control_the_terminal(tmp_path, kind):
  (tmp_path / "hostile.py").write_text(HOSTILE.format(kind=kind))
  result = shell(f"PYTHONPATH=. {sys.executable} {tmp_path}/hostile.py")
  assert result.returncode == 0, result.stderr
  output, errors = (text.replace("\x1b[K", "") for text in (result.stdout, result.stderr))
  assert output.startswith("two\nlines cat")
  assert output.replace("\n", "").isprintable()
  shown = r"cat\x1b]0;title\x07\u202e\rvit_jax: Done\x1b[2K"
  assert output.count(shown) == 2
  assert errors.count(shown) >= 4
  assert all("vit_jax: Done" not in line[:13] for line in errors.splitlines())
  assert errors.count("\\nvit_jax: Done") == 2
  lines = errors.splitlines()
  assert sum(line.startswith(("Warning: cat", "Warning: Broken image: cat")) for line in lines) == 2
  assert "Error from jax: no devices" in lines
  assert "not shown" not in errors


PREEMPTED = """
import os
import signal
import time
import jax
from vit_jax.process import console

jax.distributed.initialize("127.0.0.1:{port}", 1, 0)
os.kill(os.getpid(), signal.SIGTERM)
time.sleep(3)  # JAX looks every second
for _ in range(2):
  stop = console.StopRequest()
  stop.join()
  print([stop.agreed() for _ in range(3)])
"""


def test_a_signal_stops_processes_at_their_next_call_and_a_later_run_in_them_goes_on():
  """Whatever the step is: JAX counts calls from 1, also in a resumed run."""
  with socket.create_server(("127.0.0.1", 0)) as free:
    port = free.getsockname()[1]
  result = programs.run([sys.executable, "-c", PREEMPTED.format(port=port)], timeout=60)
  assert result.stdout == "[True, False, False]\n[False, False, False]\n", result.stderr


HEARD = """
import ctypes
import os
import signal
import threading
import time
import jax
from vit_jax.process import console

stop = console.StopRequest()
stop.listen()
stop.hold()

@jax.jit
def step(x):
  return jax.pure_callback(lambda x: os.kill(os.getpid(), signal.SIGINT) or x, x, x)

print(float(step(jax.numpy.float32(3))))
while not stop.agreed():
  time.sleep(0.01)
print("asked", flush=True)
threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
while True:
  ctypes.CDLL(None).usleep(100_000)  # the main thread is hardly ever in Python
"""


@pytest.fixture(scope="module")
def heard():
  return programs.run([sys.executable, "-c", HEARD], timeout=60)


def test_a_signal_inside_a_callback_of_jax_is_neither_raised_nor_lost(heard):
  assert heard.stdout == "3.0\nasked\n", heard.stderr


def test_a_second_ctrl_c_ends_the_process_at_once(heard):
  assert (heard.returncode, heard.stderr) == (130, "vit_jax: Interrupted.\n")
