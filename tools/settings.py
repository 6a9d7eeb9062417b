"""Writes the page of all settings, from their descriptions in vit_jax/config.

python tools/settings.py --output docs/settings.md

Exit status: 0 done; 2 wrong usage, or the folder cannot be written to; 1 the disk fails.
"""

from vit_jax.config.tool_flags import ToolFlags, ending, folder, path
from vit_jax.extras.settings_page import page
from vit_jax.process import console


def main(arguments: list[str] | None = None):
  """Writes the page; see the exit status above."""
  flags = ToolFlags("settings", __doc__, prog="python tools/settings.py")
  flags.add_argument("--output", type=path, required=True, help="the file, docs/settings.md")
  args = flags.parse_args(arguments)
  with ending("settings"):
    folder(args.output.parent, "--output")
    args.output.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
  console.of_tool()
  main()
