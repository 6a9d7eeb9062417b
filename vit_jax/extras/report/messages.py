"""Messages to the user at the start and at the end of a run."""

from collections.abc import Mapping, Sequence

import jax

from vit_jax.config import Config, Dataset, Duration
from vit_jax.config.resolve import value_of
from vit_jax.data import datasets
from vit_jax.devices import mesh
from vit_jax.evaluation import catalogue, results
from vit_jax.extras.plots import curves
from vit_jax.extras.report import report
from vit_jax.process import text
from vit_jax.process.program import own_command
from vit_jax.process.text import aligned, duration, one_line, quoted
from vit_jax.storage import files, metrics_log, workdir
from vit_jax.storage.paths import Path
from vit_jax.storage.tree import flatten
from vit_jax.training.early_stopping import EarlyStopping
from vit_jax.training.loop import Callback
from vit_jax.training.run import Run

SHORT = 5  # items of a setting that are shown


class Messages(Callback):
  """Describes the run at its start, and its results and files at its end."""

  def start(self, moment):
    """Describes the run."""
    session = self._session
    session.writer.say(introduction(self._run, session.folder, left=session.left))

  def end(self, moment):
    """Names the metrics and the files; only the first process knows them."""
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
      drawn=self._run.config.report,
    )
    session.writer.say(text)


def introduction(run: Run, folder: Path, *, left: bool) -> str:
  """Describes the run that is about to begin, in a few lines.

  Args:
    run: the run.
    folder: its workdir.
    left: whether any steps are left to train.
  """
  config = run.config
  start = run.resume_point.step
  begin = f"resuming after step {start}" if start else "starting"
  then = "compiling the first step ..."
  if not left:
    then = f"nothing to train: it already has {start:,} steps"
  return (
    f"{datasets.summary_table(run.data.datasets)}\n"
    + origins(run)
    + f"{config.model.name}: {parameters_in_words(run)} on {run.mesh.size} device(s) "
    f"({jax.devices()[0].device_kind}) in {config.model.compute_dtype}{attention_of(run)}, "
    f"{begin}; their shapes and sharding: {one_line(str(folder / workdir.PARAMETERS))}\n"
    + slow_type(config.model.compute_dtype, jax.default_backend())
    + other_settings(start, run.changed)
    + mix(run)
    + class_balance(run)
    + f"{len(run.data.train):,} training images, {config.batch_size} a step, "
    f"{run.steps.total:,} steps; {then}" + advice_on_fsdp(run)
  )


def parameters_in_words(run: Run) -> str:
  """The number of parameters, and of the trained ones if some are frozen."""
  parameters = run.parameter_count()
  trained = run.trained_count()
  if trained < parameters:
    return f"{parameters:,} parameters ({trained:,} of them trained)"
  return f"{parameters:,} parameters"


def attention_of(run: Run) -> str:
  """Names the implementation of attention; "" if the model has no attention."""
  if not run.attention:
    return ""
  library = "cuDNN's" if run.attention == "cudnn" else "XLA's"
  return f" with {library} attention"


def origins(run: Run) -> str:
  """A table of settings that a recipe took from data or weights, and of the time; else ""."""
  origins = [(key, words) for key, words in run.config.origins if words]
  if not origins:
    return ""
  rows = [(key, setting_in_words(run.config, key), words) for key, words in origins]
  if run.seconds is not None:
    rows.append(("time", f"about {duration(run.seconds)}", "steps that were timed on this machine"))
  return aligned([("setting", "value", "from"), *rows], left=(0, 1, 2)) + "\n"


def setting_in_words(config: Config, key: str) -> str:
  """The value of a setting in a few words."""
  value = value_of(config, key)
  if isinstance(value, Dataset):
    return datasets.in_words(value)
  if isinstance(value, Duration):
    return ", ".join(f"{number:g} {unit}" for unit, number in value.given().items())
  if isinstance(value, tuple) and len(value) > SHORT:
    return text.listed([text.shown(item) for item in value], SHORT)
  return str(value)


def other_settings(start: int, changed: Sequence[str]) -> str:
  """Says which settings differ from those of the steps up to `start`; "" if none differs."""
  if not changed:
    return ""
  return one_line(f"Other settings than up to step {start}: {'; '.join(changed)}") + "\n"


def slow_type(compute_dtype: str, platform: str) -> str:
  """Warns if the type of the activations is slow on this platform; else ""."""
  if platform != "cpu" or compute_dtype != "bfloat16":
    return ""
  return (
    "Activations are in bfloat16, which is slower than float32 on a CPU; a new run is faster with "
    "--config.model.compute_dtype=float32\n"
  )


def mix(run: Run) -> str:
  """Gives the share of each source of a mix, and how often its images come; "" without a mix."""
  names = run.config.data.mixed()
  if not names:
    return ""
  sources = run.data.parts
  weights = sum(source.weight for source in sources)
  seen = images_left(run)
  shares = [
    f"{name} {source.weight / weights:.2%} ({source.examples:,} images, each seen "
    f"{times(run, seen * source.weight / weights / source.examples)})"
    for name, source in zip(names, sources, strict=True)
  ]
  return one_line(f"The training images are a mix: {', '.join(shares)}") + "\n"


def images_left(run: Run) -> int:
  """The images of the steps that are left; those before may have had other weights or data."""
  return max(0, run.resume_point.up_to(run.steps.total) - run.resume_point.images)


def times(run: Run, number: float) -> str:
  """A number of times, as text; of a run that goes on, from there."""
  more = " more" if run.resume_point.step else ""
  return f"{number:.2f}{more} times"


def class_balance(run: Run) -> str:
  """How often images of the rarest and of the largest class come; "" without balance."""
  if not run.config.data.class_balanced:
    return ""
  sources = run.data.parts
  weights = sum(source.weight for source in sources)
  seen = images_left(run)
  said = []
  for named, source in zip(run.data.datasets, sources, strict=False):  # evaluations come after them
    of_class = seen * source.weight / weights / len(source.classes)
    ordered = sorted(source.classes, key=len)
    rarest, largest = (
      f"{named.source.class_names[named.source.labels(int(rows[0]))[0]]!r} "
      f"({len(rows):,} image(s), each seen {times(run, of_class / len(rows))})"
      for rows in (ordered[0], ordered[-1])
    )
    said.append(f"{named.key}: {len(ordered):,} classes from {rarest} to {largest}")
  return one_line(f"Every class is drawn equally often: {'; '.join(said)}") + "\n"


def advice_on_fsdp(run: Run) -> str:
  """Names large parameters that config.mesh.fsdp does not split; "" if it splits all of them."""
  fsdp = run.mesh.shape["fsdp"]
  whole = mesh.unsplit(flatten(run.abstract.params), fsdp)
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
  drawn: bool,
) -> str:
  """The metrics of a run that ended, and the paths of its files, in a few lines.

  Args:
    folder: the run's workdir.
    finished: whether the run reached its end; if not, a signal stopped it.
    last: step of the last checkpoint.
    account: seconds since the command began, by cause.
    early_stopping: the run's early stopping.
    head: whether the run trained a head.
    drawn: whether curves and the report were made at this end.
  """
  spent = time_spent(account)
  if not finished:
    return f"{stopped_in_words(folder, last)}\n{spent}"
  drawing = folder / curves.CURVES
  pictures = folder / workdir.PICTURES
  page = folder / report.REPORT
  lines = metrics_log.read_lines(folder)
  newest = results.evaluations_in(folder)[-1:]
  said = [
    f"Done: {last} steps.",
    *(f"Result:     {result_in_words(line, last)}" for line in newest),
    *results.unscored_in_words(lines),
    *early_stopping.in_words(folder),
    spent,
    f"Checkpoint: {folder}/checkpoints/{last}",
    f"Metrics:    {folder}/{metrics_log.METRICS} (TensorBoard: "
    f"tensorboard --logdir {quoted(folder)})",
    *(line_if(drawing, f"Curves:     {drawing}") if drawn else []),
    *line_if(pictures, f"Pictures:   {pictures}"),
    *(line_if(page, f"Report:     {page} (open it in a browser)") if drawn else []),
    f"Next:       {next_command(folder, early_stopping, head=head)}",
  ]
  return "\n".join(map(one_line, said))


def result_in_words(line: Mapping, last: int) -> str:
  """The metrics of an evaluation, with its step if that is not the last one of the run."""
  words = catalogue.in_words(text.with_numbers(line))
  if line["step"] != last:
    words += f" (after step {line['step']})"
  return words


def stopped_in_words(folder: Path, last: int) -> str:
  """Says that a signal stopped the run after its last step, and how to continue."""
  return one_line(
    f"Stopped by a signal after step {last}; its state is in {folder}/checkpoints/{last}. "
    "Start the same command again to go on."
  )


def line_if(path: Path, words: str) -> list[str]:
  """The line `words`, if there is a file or a folder at a path."""
  return [words] * files.exists(path)


def next_command(folder: Path, early_stopping: EarlyStopping, *, head: bool) -> str:
  """The command to continue with: export a classifier, or fine-tune a model without a head."""
  flag = early_stopping.flag(folder)
  if head:
    output = quoted(folder / "params.npz")
    return f"{own_command()} export --source {quoted(folder)} --output {output}{flag}"
  weights = folder
  if flag:
    weights = f"{folder}/checkpoints/{early_stopping.best.step}"
  return f"{own_command()} finetune {quoted(weights)} DATA"


def time_spent(account: dict[str, float]) -> str:
  """The time since the command began, and the share of each cause."""
  total = sum(account.values())
  shares = [f"{seconds / total:.0%} {cause}" for cause, seconds in account.items()]
  return f"Time:       {text.h_mm_ss(total)}: {', '.join(shares)}"
