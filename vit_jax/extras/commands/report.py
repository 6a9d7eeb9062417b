"""Writes the results, cost and settings of a run as one page of HTML; compares several runs.

vit-jax report workdirs/vit_digits --output report.html
vit-jax report workdirs/a workdirs/b workdirs/c --output comparison.html

The page needs no network and contains its pictures. It leaves out what a run does not have: a run
that was stopped has no accuracies of classes, for example. Curves of several runs are drawn in the
same charts, and a table lists the settings that differ. The page shows attention over predictions,
and what the newest checkpoint looks like inside, which a run's own report.html leaves out.

Exit status: 0 done; 2 wrong usage: a folder is not a workdir, or there can be no --output there;
1 the disk fails.
"""

from vit_jax.config.tool_flags import ToolFlags, anywhere, ending, file
from vit_jax.process.text import one_line


def flags() -> ToolFlags:
  """The command line."""
  result = ToolFlags("report", __doc__)
  add = result.add_argument
  add("workdirs", nargs="+", type=anywhere, metavar="WORKDIR", help="folders of runs")
  add("--output", type=anywhere, required=True, help="*.html")
  result.add_plugins()
  return result


def main(arguments: list[str] | None = None):
  """Writes the report; see the exit status above."""
  args = flags().parse_args(arguments)
  with ending("report"):
    file(args.output, "--output")
    from vit_jax.extras.report import report

    report.write(args.workdirs, args.output, inside=True)
    print(one_line(f"Written to {args.output}; open it in a browser."))
