"""Runs the commands of pages in order, each page in a new checkout: python -m tests.pages.

Needs the standard library alone; what the pages need is installed into an environment of its own,
below the folder. Prints a line for each block, and ends with 1 if one failed.
"""

import argparse
import pathlib
import shutil
import sys
import tempfile

from tests.pages import material, session
from tests.pages.blocks import blocks, given

ROOT = pathlib.Path(__file__).parents[2]
OUTSIDE = "URL"  # a page with this begins in an empty folder, beside the repository


def main():
  """Runs the pages that are named, or all."""
  parser = argparse.ArgumentParser(prog="python -m tests.pages", description=__doc__)
  parser.add_argument("pages", nargs="*", help="such as docs/weights.md; all if none is named")
  parser.add_argument("--short", action="store_true", help="interrupt what its page says may be")
  parser.add_argument("--folder", help="where everything lies, and is kept (default: removed)")
  arguments = parser.parse_args()
  pages = arguments.pages or [str(path.relative_to(ROOT)) for path in everything()]
  with tempfile.TemporaryDirectory(prefix="pages") as temporary:
    folder = pathlib.Path(arguments.folder or temporary).resolve()
    material.tree(ROOT, folder)
    failed = [page for page in pages if not tried(page, folder, short=arguments.short)]
  sys.exit(f"These pages failed: {', '.join(failed)}" if failed else 0)


def everything() -> list[pathlib.Path]:
  """The pages, the first one first."""
  return [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]


def tried(page: str, folder: pathlib.Path, *, short: bool) -> bool:
  """Whether all blocks of a page work."""
  text = (ROOT / page).read_text(encoding="utf-8")
  found = [block for block in blocks(text) if block.is_run]
  if not found:
    return True
  names = given(text)
  kinds = [name for name in names if name != OUTSIDE]
  made = material.made(kinds, folder)
  place = folder / page.removesuffix(".md").replace("/", "-")
  notes = folder / "notes" / place.name
  for each in (place, notes):
    shutil.rmtree(each, ignore_errors=True)
    each.mkdir(parents=True)
  if OUTSIDE in names:
    (place / OUTSIDE).symlink_to(folder / "tree")
  else:
    place = material.checkout(folder, place)
  data = notes / "tfds"  # what other pages have prepared is not there
  material.datasets(kinds, folder, data)
  outcome = session.run(found, place, notes, material=made, data=data, short=short)
  for line, seconds in outcome.seconds:
    wrong = outcome.status and line == outcome.seconds[-1][0]
    print(f"{'FAILED' if wrong else 'ok':6} {seconds:6.1f} s  {page}:{line}", flush=True)
  if outcome.status:
    print(outcome.output, flush=True)
  return outcome.status == 0


if __name__ == "__main__":
  main()
