"""Messages to the user when a run begins and when it ends."""

from collections.abc import Mapping, Sequence

import jax

from vit_jax.config import Config, Dataset, Duration
from vit_jax.data import datasets
from vit_jax.devices import sharding
from vit_jax.evaluation import catalogue, results
from vit_jax.extras.plots import curves
from vit_jax.extras.report import report
from vit_jax.process import json_text
from vit_jax.process.text import aligned, duration, one_line, quoted
from vit_jax.storage import files, metrics_log, workdir
from vit_jax.storage.paths import Path
from vit_jax.storage.tree import flatten
from vit_jax.training.callbacks import Session
from vit_jax.training.early_stopping import EarlyStopping
from vit_jax.training.loop import Callback
from vit_jax.training.run import Run


class Messages(Callback):
  """Tells the user what begins, and at the end what was reached and where it lies."""

  def __init__(self, run: Run, session: Session):
    self._run, self._session = run, session

  def start(self, moment):
    """Describes the run."""
    session = self._session
    session.writer.say(introduction(self._run, session.folder, left=session.left))

  def end(self, moment):
    """Gives its metrics and its files; the first process alone knows them."""
    session = self._session
    if jax.process_index() != 0:
      return
    text = conclusion(
      session.folder,
      finished=not moment.stopping,
      last=session.checkpoints.last_step(),
      account=session.monitor.account(),
      early_stopping=session.early_stopping,
      head=self._run.config.objective.trains_head,
    )
    session.writer.say(text)


def introduction(run: Run, folder: Path, *, left: bool) -> str:
  """Describes the run that is about to begin, in a few lines.

  Args:
    run: the run.
    folder: its workdir.
    left: whether any steps are left to train.
  """
  config, device, start = run.config, jax.devices()[0], run.resume_point.step
  parameters, trained = run.parameter_count(), run.trained_count()
  part = f" ({trained:,} of them trained)" if trained < parameters else ""
  then = (
    "compiling the first step ..." if left else f"nothing to train: it already has {start:,} steps"
  )
  begin = f"resuming after step {start}" if start else "starting"
  return (
    f"{datasets.summary_table(run.data.datasets)}\n"
    + origins(run)
    + f"{config.model.name}: {parameters:,} parameters{part} on {run.mesh.size} device(s) "
    f"({device.device_kind}) in {config.model.compute_dtype}{attention_of(run)}, {begin}; "
    f"their shapes and sharding: {one_line(str(folder / workdir.PARAMETERS))}\n"
    + slow_type(config.model.compute_dtype, jax.default_backend())
    + other_settings(start, run.changed)
    + mix(run)
    + f"{len(run.data.train):,} training images, {config.batch_size} a step, "
    f"{run.steps.total:,} steps; {then}" + advice_on_fsdp(run)
  )


def attention_of(run: Run) -> str:
  """Whose attention computes; "" if the model has none."""
  names = {"cudnn": "cuDNN's", "xla": "XLA's"}
  return f" with {names[run.attention]} attention" if run.attention else ""


def origins(run: Run) -> str:
  """A table of what a recipe took from data or weights, and of the time; "" if there is nothing."""
  origins = [(key, words) for key, words in run.config.origins if words]
  if not origins:
    return ""
  rows = [(key, setting_in_words(run.config, key), words) for key, words in origins]
  if run.seconds is not None:
    rows.append(("time", f"about {duration(run.seconds)}", "steps that were timed on this machine"))
  return aligned([("setting", "value", "from"), *rows], left=(0, 1, 2)) + "\n"


def setting_in_words(config: Config, key: str) -> str:
  """The value of a setting, of a duration or of a dataset, in a few words."""
  value = config
  for name in key.split("."):
    value = value[name] if isinstance(value, Mapping) else getattr(value, name)
  if isinstance(value, Dataset):
    return datasets.in_words(value)
  if isinstance(value, Duration):
    return ", ".join(f"{number:g} {unit}" for unit, number in value.given().items())
  return str(value)


def other_settings(start: int, changed: Sequence[str]) -> str:
  """Says which settings differ from those of the steps up to `start`; "" if none differs."""
  text = one_line(f"Other settings than up to step {start}: {'; '.join(changed)}")
  return f"{text}\n" if changed else ""


def slow_type(compute_dtype: str, platform: str) -> str:
  """Says that the type of the activations is slow on this platform; "" if it is not."""
  if platform != "cpu" or compute_dtype != "bfloat16":
    return ""
  return (
    "Activations are in bfloat16, which is slower than float32 on a CPU; a new run is faster with "
    "--config.model.compute_dtype=float32\n"
  )


def mix(run: Run) -> str:
  """Says which share each source of a mix has, and how often it is seen; "" without a mix."""
  names, parts = run.config.data.mixed(), run.data.parts
  if not names:
    return ""
  weights, seen = sum(part.weight for part in parts), run.resume_point.up_to(run.steps.total)
  shares = [
    f"{name} {part.weight / weights:.2%} ({part.examples:,} images, each seen "
    f"{seen * part.weight / weights / part.examples:.2f} times)"
    for name, part in zip(names, parts, strict=True)
  ]
  return one_line(f"The training images are a mix: {', '.join(shares)}") + "\n"


def advice_on_fsdp(run: Run) -> str:
  """Says which large parameters config.mesh.fsdp does not split; "" if it splits all of them."""
  fsdp = run.mesh.shape["fsdp"]
  whole = sharding.unsplit(flatten(run.abstract.params), fsdp)
  if not whole:
    return ""
  return (
    f"\nconfig.mesh.fsdp={fsdp} does not split {len(whole)} large parameter(s), such as "
    f"{whole[0]}: it divides none of their axes that are left. Choose a divisor "
    f"({workdir.PARAMETERS} has their shapes)."
  )


def conclusion(
  folder: Path,
  *,
  finished: bool,
  last: int,
  account: dict[str, float],
  early_stopping: EarlyStopping,
  head: bool,
) -> str:
  """Gives the metrics of a run that ended, and the paths of its files, in a few lines.

  Args:
    folder: the run's workdir.
    finished: whether the run reached its end; if not, a signal stopped it.
    last: step of the last checkpoint.
    account: seconds since the command began, by cause.
    early_stopping: of the run.
    head: whether the run trained a head.
  """
  spent = time_spent(account)
  if not finished:
    stopped = (
      f"Stopped by a signal after step {last}; its state is in {folder}/checkpoints/{last}. "
      "Start the same command again to go on."
    )
    return f"{one_line(stopped)}\n{spent}"
  lines = metrics_log.read_lines(folder)
  metrics = results.evaluations_in(folder)[-1:]
  reached = [f"Reached: {catalogue.in_words(json_text.with_numbers(line))}" for line in metrics]
  said = [
    f"Done: {last} steps.",
    *reached,
    *results.unscored_in_words(lines),
    *early_stopping.in_words(folder),
    spent,
    f"Checkpoint: {folder}/checkpoints/{last}",
    f"Metrics:    {folder}/{metrics_log.METRICS} (TensorBoard: "
    f"tensorboard --logdir {quoted(folder)})",
    f"Curves:     {folder}/{curves.CURVES}",
    *pictures_in_words(folder),
    *report_in_words(folder),
    f"Next:       {next_command(folder, early_stopping, head=head)}",
  ]
  return "\n".join(map(one_line, said))


def report_in_words(folder: Path) -> list[str]:
  """The line about the report, if there is one."""
  path = folder / report.REPORT
  return [f"Report:     {path} (open it in a browser)"] if files.is_file(path) else []


def pictures_in_words(folder: Path) -> list[str]:
  """The line about the pictures of the evaluations, if there are any."""
  there = files.is_folder(folder / metrics_log.PICTURES)
  return [f"Pictures:   {folder}/{metrics_log.PICTURES}"] if there else []


def next_command(folder: Path, early_stopping: EarlyStopping, *, head: bool) -> str:
  """What to do with the run: export the classifier, or fine-tune what has no head."""
  if head:
    output = quoted(folder / "params.npz")
    command = f"python tools/export.py --source {quoted(folder)} --output {output}"
    return command + early_stopping.flag(folder)
  kept = early_stopping.flag(folder)
  best = f"{folder}/checkpoints/{early_stopping.best.step}" if kept else folder
  return f"python -m vit_jax.main --config=configs/finetune.py:{quoted(best)},DATA"


def time_spent(account: dict[str, float]) -> str:
  """The time since the command began, and the share of each cause."""
  total = sum(account.values())
  shares = [f"{seconds / total:.0%} {cause}" for cause, seconds in account.items()]
  return f"Time:       {metrics_log.clock(total)}: {', '.join(shares)}"
