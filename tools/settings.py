"""Writes the page of all settings, from their descriptions in vit_jax/config.

python tools/settings.py --output docs/settings.md

Exit status: 0 done; 2 wrong usage, or nowhere to write to.
"""

import argparse
import pathlib
import sys

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[1])]

from tools.ending import ending, folder
from vit_jax.config.page import page
from vit_jax.config.reading import expanded
from vit_jax.process import console


def main():
  """Writes the page; see the exit status above."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument("--output", required=True, help="the file, such as docs/settings.md")
  args = parser.parse_args()
  with ending("settings"):
    path = expanded(args.output)
    folder(path.parent, "--output")
    path.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
  console.of_tool()
  main()
