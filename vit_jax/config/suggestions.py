"""Messages that suggest what the user may have meant."""

import dataclasses
import difflib
import pathlib
from collections.abc import Mapping
from typing import Any

from vit_jax.config.fields import Group
from vit_jax.config.run import Config

# Each name is the last part of a key, in lower case and without hyphens and underscores.
SETTINGS = {
  "config.schedule.learning_rate": "lr baselr learningrate initlr maxlr peaklr stepsize",
  "config.schedule.warmup": "warmup warmupsteps warmupepochs numwarmupsteps",
  "config.schedule.end_learning_rate": "minlr endlr finallr",
  "config.schedule.decay": "scheduler lrscheduler lrschedule lrdecay sched",
  "config.duration.epochs": "epochs epoch numepochs ntrainepochs numtrainepochs maxepochs",
  "config.duration.steps": "steps numsteps totalsteps maxsteps trainsteps iterations iters",
  "config.batch_size": "bs batchsize batch trainbatchsize globalbatchsize",
  "config.accumulation": "accumsteps gradaccumsteps gradientaccumulationsteps accumfreq",
  "config.optimizer.weight_decay": "wd weightdecay l2",
  "config.optimizer.kind": "opt optim optimizername optimizertype",
  "config.optimizer.clip_norm": "clip gradclip clipgrad clipgradnorm maxgradnorm gradclipnorm",
  "config.optimizer.ema": "emadecay modelema polyak averaging",
  "config.loss.label_smoothing": "smoothing labelsmoothing",
  "config.objective.class_weights": "classweight classweights classweighting",
  "config.lora.rank": "lora lorar lorarank",
  "config.model.num_classes": "numclasses nclasses classes numlabels nbclasses",
  "config.model.dropout": "drop droprate dropoutrate",
  "config.model.compute_dtype": "dtype precision amp bf16 fp16 halfprecision",
  "config.model.remat": "gradcheckpointing gradientcheckpointing checkpointing",
  "config.model.name": "arch architecture modelname variant",
  "config.data.image_size": "imgsize imagesize inputsize resolution res size",
  "config.data.resampling": "interpolation resample resizefilter resizemethod filter",
  "config.data.threads": "workers numworkers nworkers",
  "config.data.train.source": "data dataset datadir datapath datasetname traindata traindir root",
  "config.init_from": "pretrained checkpointpath resume finetune ckpt weights initcheckpoint",
  "config.seed": "randomseed rngseed manualseed",
  "config.log_every": "logevery logsteps loggingsteps loginterval printfreq",
  "config.evaluate_every": "evalevery evalsteps evalinterval evaluationsteps",
  "config.checkpoint.every": "saveevery savesteps saveinterval checkpointevery",
}
_OURS = {word: setting for setting, words in SETTINGS.items() for word in words.split()}


def ours(key: str) -> str:
  """Our setting that other libraries call `key`; "" if none is known."""
  return _OURS.get(key.lower().replace("_", "").replace("-", ""), "")


def similar(word: str, known) -> str:
  """The names of `known` most similar to `word`, best first, joined by commas; ignores case."""
  return ", ".join((alike(word, sorted(known), 0.5) or sorted(known))[:5])


def unknown(path: str, key: str, known, group: Group | None = None) -> str:
  """One sentence about a key that the group `path`, with the settings `known`, does not have.

  If another kind of the group has it, it names that kind.
  It suggests first the setting that other libraries call by this name, then the settings with the
  most similar names. Among equally similar names, those of this group come first.
  """
  of_kinds = []
  if group:
    of_kinds = [kind for kind, settings in group.classes() if has(settings, key)]
  if of_kinds:
    kinds = " or ".join(f"--{path}.kind={kind}" for kind in of_kinds)
    return f"{path}.{key} is a setting of another kind; give {kinds} too, or leave it out."
  here = [f"{path}.{name}" for name in sorted(known)] or [path]
  names = dict.fromkeys([*here, *_dotted(dataclasses.asdict(Config()), "config")])
  close = alike(key, names, 0.62, part=lambda name: name.rpartition(".")[2])
  called = [setting for setting in [ours(key)] if setting]
  near = dict.fromkeys([*called, *close] or here)
  return f"{path}.{key} is not a setting; nearest: {', '.join([*near][:5])}."


def has(settings: type, key: str) -> bool:
  """Whether a class of settings has the field `key`."""
  return any(field.name == key for field in dataclasses.fields(settings))


def alike(word: str, names, cutoff: float, part=str) -> list[str]:
  """The `names` whose `part` is similar to the word, best first; ignores case.

  The cutoff is that of difflib: 1 accepts only equal words, 0 any word.
  """
  keys = {part(name).lower() for name in names}
  close = difflib.get_close_matches(word.lower(), keys, cutoff=cutoff)
  return [name for like in close for name in names if part(name).lower() == like]


def missing_recipe(path: str, installed: pathlib.Path) -> str:
  """One sentence about a missing recipe; suggests others.

  Args:
    path: as it was given.
    installed: the folder of this project's recipes.
  """
  folders = pathlib.Path(path).parent, pathlib.Path("configs")
  others = {str(other) for folder in folders for other in folder.glob("*.py")}
  others |= {other.stem for other in installed.glob("*.py")}
  nearest = f"; nearest: {similar(path, others)}" if others else ""
  return f"There is no recipe {path}{nearest}."


def _dotted(values: Mapping[str, Any], path: str) -> list[str]:
  """The dotted names of all settings and groups below `path`."""
  names = []
  for key, value in values.items():
    names.append(f"{path}.{key}")
    if isinstance(value, Mapping):
      names += _dotted(value, names[-1])
  return names
