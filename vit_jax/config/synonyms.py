"""Names of settings in other libraries, so that a message can suggest ours."""

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
  "config.model.num_classes": "numclasses nclasses classes numlabels nbclasses",
  "config.model.dropout": "drop droprate dropoutrate",
  "config.model.compute_dtype": "dtype precision amp bf16 fp16 halfprecision",
  "config.model.remat": "gradcheckpointing gradientcheckpointing checkpointing",
  "config.model.name": "arch architecture modelname variant",
  "config.data.image_size": "imgsize imagesize inputsize resolution res size",
  "config.data.threads": "workers numworkers nworkers",
  "config.data.train.source": "data dataset datadir datapath datasetname traindata traindir root",
  "config.init_from": "pretrained checkpointpath resume finetune ckpt weights initcheckpoint",
  "config.seed": "randomseed rngseed manualseed",
  "config.log_every": "logevery logsteps loggingsteps loginterval printfreq",
  "config.evaluate_every": "evalevery evalsteps evalinterval evaluationsteps",
  "config.checkpoint.every": "saveevery savesteps saveinterval checkpointevery",
  "config.checkpoint.retry_seconds": "onfailure",
}
_OURS = {word: setting for setting, words in SETTINGS.items() for word in words.split()}

# Settings that have moved, and what to give now.
MOVED = {
  "config.evaluate_average": "--no-average, which scores the parameters themselves",
  "config.data.evaluate": "--config.evaluate.NAME in place of --config.data.evaluate.NAME",
  "config.few_shot": "--config.evaluate.NAME, with --config.evaluate.NAME.kind=few_shot",
  "config.nearest": "--config.evaluate.NAME, with --config.evaluate.NAME.kind=nearest_neighbours",
  "config.reconstruct": "--config.evaluate.NAME, with --config.evaluate.NAME.kind=reconstruction",
  "config.masked": "config.objective.rate and config.objective.target",
}


def ours(key: str) -> str:
  """Our setting that other libraries call `key`; "" if none is known."""
  return _OURS.get(key.lower().replace("_", "").replace("-", ""), "")
