"""All evaluation sets of a run, inside the training loop or with --mode=evaluate."""

import json
import pathlib

import jax

from vit_jax import checkpoint, workdir, writers
from vit_jax import mesh as meshes
from vit_jax.config import ConfigError, RunError, to_dict
from vit_jax.data.device import put_ahead
from vit_jax.data.images import BadImage
from vit_jax.evaluators import classification
from vit_jax.plan import Plan, evaluate_batches

RESULT = "evaluation.json"


class Evaluation:
  """Calls the classification evaluator on every named set."""

  def __init__(self, plan: Plan):
    """Jits the evaluator's step; it is compiled at the first use."""
    self._plan = plan
    self._step = jax.jit(
      classification.make_step(plan.model, plan.config.loss),
      out_shardings=meshes.replicated(plan.mesh),
    )

  def __call__(self, params, *, stop) -> dict[str, float] | None:
    """Figures of all sets as {"NAME/top1": ...}; None where `stop()` came true on the way."""
    figures = {}
    for name in self._plan.data.evaluate:
      batches = put_ahead(
        evaluate_batches(self._plan, name),
        meshes.batch_sharding(self._plan.mesh),
        ahead=self._plan.config.data.ahead,
      )
      try:
        with jax.transfer_guard("disallow"):
          result = classification.evaluate(self._step, params, batches, stop=stop)
      except (BadImage, OSError) as error:
        raise RunError(f"Evaluation set {name!r} cannot be scored: {error}") from error
      if result is None:
        return None
      figures |= {f"{name}/{figure}": value for figure, value in result.items()}
    return figures


def evaluate(plan: Plan, folder: pathlib.Path) -> dict[str, float]:
  """Evaluates a workdir's checkpoint, prints the figures and writes WORKDIR/evaluation.json.

  The moving average of the parameters is used where the config has one.

  Raises:
    CheckpointError: there is none, or it is damaged.
    ConfigError: it does not fit the config, or there is no set to evaluate on.
  """
  if not plan.data.evaluate:
    raise ConfigError(
      "No set of config.data.evaluate has a source, so there is nothing to evaluate on; give one, "
      "such as --config.data.evaluate.val.source=folder:DIR."
    )
  source = checkpoint.find(folder, plan.config.evaluate_step)
  ema = bool(plan.config.optimizer.ema)
  wanted = {"params": plan.abstract.params} | ({"ema": plan.abstract.ema} if ema else {})
  checkpoint.check_fits(source, wanted, to_dict(plan.config), parts=tuple(wanted))
  params = checkpoint.load_params(source, ema=ema)
  shardings = jax.tree.map(lambda x: x.sharding, plan.abstract.params)
  figures = Evaluation(plan)(jax.device_put(params, shardings), stop=lambda: False)
  if jax.process_index() == 0:
    result = folder / RESULT
    with workdir.writing(folder):
      result.write_text(json.dumps({"step": int(source.name)} | figures, indent=2) + "\n")
    print(f"step {source.name}  {in_words(figures)}\nWritten to {result}")
  return figures


def is_evaluation(line: dict) -> bool:
  """Whether a line of metrics.jsonl holds figures of an evaluation."""
  return any(key.endswith("/top1") for key in line)


def steps_in(folder: pathlib.Path) -> frozenset[int]:
  """The steps that metrics.jsonl already holds an evaluation of."""
  return frozenset(line["step"] for line in writers.read(folder) if is_evaluation(line))


def in_words(figures: dict[str, float]) -> str:
  """Figures of evaluation sets on one line."""
  names = [key.removesuffix("/top1") for key in figures if key.endswith("/top1")]
  return "; ".join(
    f"{name}: top-1 {figures[f'{name}/top1']:.2%}, top-5 {figures[f'{name}/top5']:.2%}, "
    f"loss {figures[f'{name}/loss']:.4f} on {figures[f'{name}/examples']:,} images"
    for name in names
  )
