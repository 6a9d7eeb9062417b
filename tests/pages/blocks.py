"""The blocks of code of a page, with the marks before them.

Blocks of `bash` and `python` are run in the order of the page; `python title="FILE"` is written as
that file. All other blocks, such as `text`, are shown alone. A mark is a comment of HTML on a line
of its own:

  <!-- given: NAME, NAME -->  for the page: what is there before its first block
  <!-- not run: REASON -->  for the block below; the reason begins with one of `REASONS`
  <!-- run with: FLAGS -->  for the block below: each python command in it gets these flags too
  <!-- may be stopped: WHY -->  for the block below: --short stops its run after the first steps
  <!-- compiled for: TOPOLOGY, TOPOLOGY -->  for the block below: where the runs in it fit
"""

import dataclasses
import re
from collections.abc import Iterator

RUN = ("bash", "python")
REASONS = ("downloads", "hours", "cloud", "ImageNet", "JFT", "several GPUs", "several hosts", "GPU")

FENCE = re.compile(r"^```(?P<language>\w*)(?: title=\"(?P<file>[^\"]+)\")?\s*$")
MARK = re.compile(
  r"^<!-- (?P<name>not run|run with|may be stopped|compiled for|given): (?P<text>.+) -->$"
)
COMMAND = re.compile(r"^(?:PYTHONPATH=\S+ )?(?:python (?:-m|tools/)|vit-jax )")


@dataclasses.dataclass(frozen=True)
class Block:
  """A block of code.

  Attributes:
    line: of its fence, counted from 1.
    language: such as "bash"; "" if the fence names none.
    file: that it is written as, or "".
    text: what is between its fences.
    marks: {name: text} of those right before it.
  """

  line: int
  language: str
  file: str
  text: str
  marks: dict[str, str]

  @property
  def is_run(self) -> bool:
    """Whether it is run, or written as a file."""
    return self.language in RUN and "not run" not in self.marks

  def with_flags(self) -> str:
    """The text, with the flags of `run with` behind each command of python."""
    flags = self.marks.get("run with", "")
    text = self.text.replace("\\\n", "")
    lines = text.splitlines() if flags else []
    added = [extended(line, flags) if COMMAND.match(line) else line for line in lines]
    return "\n".join(added) + "\n" if flags else self.text


def extended(line: str, flags: str) -> str:
  """A command with more flags, before the sign that sends it to the background."""
  command = line.removesuffix(" &")
  return f"{command} {flags}{line.removeprefix(command)}"


def blocks(page: str) -> Iterator[Block]:
  """The blocks of a page's text."""
  lines, marks, place = page.splitlines(), {}, 0
  while place < len(lines):
    if fence := FENCE.match(lines[place]):
      end = lines.index("```", place + 1)
      text = "\n".join(lines[place + 1 : end]) + "\n"
      yield Block(place + 1, fence["language"], fence["file"] or "", text, marks)
      marks, place = {}, end
    elif mark := MARK.match(lines[place]):
      marks = marks | {mark["name"]: mark["text"]}
    elif lines[place]:
      marks = {}
    place += 1


def given(page: str) -> list[str]:
  """The names that the page's mark `given` lists."""
  marks = (MARK.match(line) for line in page.splitlines())
  return [
    name for mark in marks if mark and mark["name"] == "given" for name in split(mark["text"])
  ]


def split(names: str) -> list[str]:
  """Names between commas."""
  return [name.strip() for name in names.split(",")]
