"""Blocks of code and their marks; few are not run."""

import pathlib
import re

import pytest

from tests.pages import material
from tests.pages.__main__ import OUTSIDE, ROOT, everything
from tests.pages.blocks import blocks, given

PAGES = [str(path.relative_to(ROOT)) for path in everything()]
MOST = 0.25  # of the blocks that have commands, those that are not run

EXAMPLE = """
<!-- given: demo, photos -->
<!-- not run: hours, on a pod -->
```bash
python -m one
```

<!-- run with: --steps=2 -->
```bash
cd x
python -m two \\
  --flag
PYTHONPATH=y python tools/four.py &
```

```python title="a.py"
x = 1
```
"""


def page_blocks(page: str):
  return list(blocks((ROOT / page).read_text(encoding="utf-8")))


def test_blocks_are_found_with_their_marks():
  first, second, third = blocks(EXAMPLE)
  assert first.marks == {"given": "demo, photos", "not run": "hours, on a pod"}
  assert (first.is_run, second.is_run, third.is_run) == (False, True, True)
  assert (first.line, third.file, third.text) == (4, "a.py", "x = 1\n")
  assert given(EXAMPLE) == ["demo", "photos"]


def test_flags_are_added_to_each_line_with_a_command():
  _, second, third = blocks(EXAMPLE)
  assert second.with_flags().splitlines() == [
    "cd x",
    "python -m two   --flag --steps=2",
    "PYTHONPATH=y python tools/four.py --steps=2 &",
  ]
  assert third.with_flags() == third.text


@pytest.mark.parametrize("page", PAGES)
def test_what_is_given_can_be_made(page):
  names = set(given((ROOT / page).read_text(encoding="utf-8")))
  assert names <= {OUTSIDE, *material.MATERIAL}


def test_few_blocks_are_not_run():
  commands = [b for page in PAGES for b in page_blocks(page) if b.language in ("bash", "python")]
  left_out = [block for block in commands if not block.is_run]
  assert len(left_out) <= MOST * len(commands)


def test_the_commands_of_the_readme_are_run_by_the_checks_of_every_change():
  checks = pathlib.Path(ROOT, ".ci", "run").read_text()
  assert re.search(r"-m tests\.pages --short .*README\.md", checks)


def test_each_command_of_the_table_of_tasks_stands_in_a_block():
  """So it is run with its page, or its page says why not."""
  page = (ROOT / "docs/commands.md").read_text(encoding="utf-8")
  table = page[page.index("## By task") : page.index("## All")]
  rows = [line.split(" | ")[1] for line in table.splitlines() if line.startswith("| ")][2:]
  asked = [command for row in rows for command in re.findall(r"`((?:python|vit-jax) [^`]+)`", row)]
  texts = (b.text for p in PAGES for b in page_blocks(p) if b.language == "bash")
  lines = [
    " ".join(line.split()) for text in texts for line in text.replace("\\\n", "").split("\n")
  ]
  assert len(asked) > 10
  assert [command for command in asked if not any(line.startswith(command) for line in lines)] == []
