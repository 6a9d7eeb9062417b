"""Changes the code in small ways, one at a time, and tells which changes no test notices.

python -m tests.mutation [FILE ...] [--sample=N] [--seed=S] [--output=FILE]

Without FILEs it takes all that tests/mutation/targets.py names. Each mutant meets the tests that
are named there for its file. Results are appended to the output: start a stopped command again, and
it continues. Survivors are tried again once their tests have changed.

Needs the extra `mutation`. Exit status: 0 done; 1 the tests fail without a change; 2 wrong usage.
"""

import pathlib
import signal
from collections.abc import Iterator

from vit_jax.config import ConfigError
from vit_jax.config.tool_flags import ToolFlags, ending, path, whole

ROOT = pathlib.Path(__file__).parents[2]
MARGIN, LEAST = 4, 5  # times the usual computation, and seconds more, until a mutant is killed


def flags() -> ToolFlags:
  """The command line."""
  result = ToolFlags("mutation", __doc__, prog="python -m tests.mutation")
  add = result.add_argument
  add("files", nargs="*", metavar="FILE", help="vit_jax/PACKAGE/NAME.py; default: all")
  add("--sample", type=whole(1, 10**6), metavar="N", help="mutants of each file; default: all")
  add("--seed", type=whole(0, 2**32 - 1), default=0, help="draws the sample (default: 0)")
  add("--output", type=path, default="workdirs/mutants.jsonl", metavar="FILE", help="results")
  return result


def try_all(file: str, mutants: list, output: pathlib.Path) -> Iterator[str]:
  """Tries the mutants of a file that are not settled; yields a line for each of them.

  Raises:
    RuntimeError: the tests fail without a change.
  """
  from tests.mutation import results, targets, trial

  tests, records = targets.TESTS[file], results.read(output)
  total, log = results.sum_of(ROOT, tests), output.with_suffix(".log")
  left = [m for m in mutants if not results.is_settled(records.get(m.key), total)]
  limit = left and allowed(tests, log)
  for mutant in left:
    overlay = trial.Overlay(file.removesuffix(".py").replace("/", "."), ROOT / file, mutant.code)
    result = trial.run(overlay, tests, limit, log)
    killed = result.status != trial.SURVIVED
    results.add(output, results.Record(mutant.key, killed, total))
    how = "killed" if killed else "survived"
    yield f"{file}:{mutant.line} {how}, {result.seconds:.1f} s\n{mutant.diff}"


def allowed(tests: list[str], log: pathlib.Path) -> int:
  """Seconds that a mutant may compute for."""
  from tests.mutation import trial

  result = trial.run(None, tests, 10**6, log)
  if result.status != trial.SURVIVED:
    raise RuntimeError(f"Tests fail without a change, or cannot be run: see {log}.")
  return round(MARGIN * result.seconds) + LEAST


def main(arguments: list[str] | None = None):
  """Tries mutants, and prints the survivors and the scores."""
  args = flags().parse_args(arguments)
  signal.signal(signal.SIGTERM, signal.default_int_handler)  # no trial outlives the command
  with ending("mutation"):
    from tests.mutation import mutants, results, targets, trial

    files, tried = args.files or [*targets.TESTS], []
    if unknown := set(files) - set(targets.TESTS):
      raise ConfigError(
        f"tests/mutation/targets.py does not name {', '.join(sorted(unknown))}; add it there, with "
        "the tests that have to kill its mutants."
      )
    args.output.parent.mkdir(parents=True, exist_ok=True)
    trial.prepare()
    for file in files:
      made = [*mutants.of_file(ROOT, file, sample=args.sample, seed=args.seed)]
      for line in try_all(file, made, args.output):
        print(line, flush=True)
      tried += made
    print(results.table(tried, results.read(args.output)))


if __name__ == "__main__":
  main()
