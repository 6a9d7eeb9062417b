"""One page in one shell: its blocks in order, each told when it begins."""

import dataclasses
import os
import pathlib
import subprocess
import time
from collections.abc import Iterator, Sequence

from tests.pages.blocks import Block

TAIL = 40  # lines that are shown of a page that failed


@dataclasses.dataclass(frozen=True)
class Outcome:
  """What came of a page.

  Attributes:
    seconds: (line of a block, how long it took) of those that were begun.
    status: of the shell; 0 if all blocks worked.
    output: the last lines, of a page that failed.
  """

  seconds: list[tuple[int, float]]
  status: int
  output: str


def run(
  blocks: Sequence[Block],
  folder: pathlib.Path,
  notes: pathlib.Path,
  *,
  material: Sequence[pathlib.Path],
  data: pathlib.Path,
  short: bool,
) -> Outcome:
  """Runs blocks in a folder.

  Args:
    blocks: those that are run.
    folder: where the shell begins.
    notes: a folder for the script and what it prints.
    material: folders whose content is put into the checkout as soon as the shell is in it.
    data: the folder of prepared datasets.
    short: whether blocks that may be stopped are.
  """
  script, log = notes / "page.sh", notes / "page.log"
  read, write = os.pipe()
  lines = [*preamble(material, log), *commands(blocks, notes, write, short)]
  script.write_text("\n".join(lines))
  environment = os.environ | {"TFDS_DATA_DIR": str(data)}
  environment.pop("PYTHONPATH", None)  # the checkout's own code is what is tried
  begun = []
  with log.open("wb") as output:
    shell = subprocess.Popen(
      ["bash", str(script)],
      cwd=folder,
      env=environment,
      stdin=subprocess.DEVNULL,
      stdout=output,
      stderr=subprocess.STDOUT,
      pass_fds=[write],
      start_new_session=True,
    )
  os.close(write)
  with os.fdopen(read) as lines:
    for line in lines:
      begun.append((int(line), time.monotonic()))
  status, ends = shell.wait(), [*(moment for _, moment in begun[1:]), time.monotonic()]
  seconds = [(line, end - start) for (line, start), end in zip(begun, ends, strict=True)]
  tail = log.read_text(errors="replace").splitlines()[-TAIL:]
  return Outcome(seconds, status, "\n".join(tail) if status else "")


def preamble(material: Sequence[pathlib.Path], log: pathlib.Path) -> Iterator[str]:
  """Stops at the first failure; `place` puts the material into the checkout."""
  copies = "; ".join(f"cp -rn '{each}'/. ." for each in material) or ":"
  yield "set -e -o pipefail"
  yield f"place() {{ {copies}; [ ! -e Makefile ] || export PYTHONPATH=$PWD; }}"
  waiting = f"until grep -q '^step' '{log}'; do sleep 1; done"
  yield f"stop_at_a_step() {{ {waiting}; pkill -TERM -s $$ -f 'vit_jax.main|vit-jax train'; }}"
  yield "trap 'kill $(jobs -p) 2> /dev/null || true' EXIT"
  yield "[ ! -e .venv ] || source .venv/bin/activate"


def commands(blocks: Sequence[Block], notes: pathlib.Path, told: int, short: bool) -> Iterator[str]:
  """The lines of the script, in the order of the page; `told` gets the line of each block."""
  session = notes / "page.py"
  session.write_text("")
  for number, block in enumerate(blocks):
    text = notes / f"block-{number}"
    text.write_text(block.with_flags())
    yield f"place; echo {block.line} >&{told}"
    if block.file:
      yield f"cp '{text}' '{block.file}'"
    elif block.language == "python":  # in the session of the blocks of Python above it
      yield f"cat '{text}' >> '{session}'; python '{session}'"
    elif short and "may be stopped" in block.marks:
      yield f"stop_at_a_step {told}>&- & source '{text}' || true"
    else:
      yield f"source '{text}'"
  yield "wait"
