"""The paper's pre-training and fine-tunings as stages of studies (Table 4, Section 4.1)."""

from collections.abc import Mapping

from vit_jax.config import recipe_file
from vit_jax.extras.experiments.studies.study import Choice, Stage
from vit_jax.recipes import SETS, TASKS, is_resnet, of_task
from vit_jax.recipes.finetuning import sets

REAL = "ImageNet ReaL"
TABLE_4 = {  # the tasks as Tables 5 and 7 call them, and their keys in `recipes.TASKS`
  "ImageNet": "imagenet",
  "CIFAR-10": "cifar10",
  "CIFAR-100": "cifar100",
  "Oxford-IIIT Pets": "pets",
  "Oxford Flowers-102": "flowers",
}

# In Tables 5 to 7 these two are fine-tuned on ImageNet like all others; the recipe has the image
# sizes of Table 2.
AS_ALL_OTHERS = {
  "ViT-L/16": {"data.image_size": 384, "optimizer.ema": 0.0},
  "ViT-H/14": {"data.image_size": 378, "optimizer.ema": 0.0},
}

SIDES = ("data.image_size", "data.train_resize")

PROBE = {  # the data of the 5-shot evaluations of the paper's recipes
  "evaluate.imagenet.train.source": "tfds:imagenet2012",
  "evaluate.imagenet.test.source": "tfds:imagenet2012",
}


def pretraining_of(model: str, dataset: str, argument: str = "") -> str:
  """The recipe of a row of Table 3.

  Args:
    model: such as "R50x1+ViT-B/16".
    dataset: "jft", "i21k" or "i1k".
    argument: the argument of the recipe, such as the number of epochs.
  """
  name = model.lower().replace("-", "_").replace("+", "_").replace("/", "")
  recipe = f"configs/{name}_{dataset}.py"
  if argument:
    recipe += f":{argument}"
  return recipe


def halves(model: str, name: str, **pretraining) -> Stage:
  """Fine-tuning on five classes of Fashion-MNIST, after pre-training on the other five.

  Args:
    model: of configs/fashion_halves.py.
    name: of the pre-training.
    **pretraining: its `settings` and `choice`.
  """
  before = Stage(f"configs/fashion_halves.py:first,{model}", name=name, **pretraining)
  return Stage(f"configs/fashion_halves.py:second,{model}", name=f"tuned_{name}", after=before)


def fine_tuning(model: str, task: str, after: Stage) -> Stage:
  """Fine-tuning as in Tables 5 to 7: a row of Table 4 at 384 (378) px.

  The learning rate is the best of the paper's grid on the development part of the training set. A
  ResNet also tries the BiT-HyperRule, as in Appendix B.1.1. The test set is scored once, at the
  end.

  Args:
    model: the model of the weights.
    task: a key of `recipes.TASKS`.
    after: the pre-training.
  """
  train, scored = sets(task, part="development", real=False)
  candidates = [{"schedule.learning_rate": rate} for rate in TASKS[task].learning_rates]
  if is_resnet(model):
    candidates.append(hyperrule(task))
  settings = {"evaluate_every.steps": 0}
  if task == "imagenet":
    settings |= AS_ALL_OTHERS.get(model, {})
  held_out = {
    "data.train.split": train.split,
    "evaluate.test.split": scored["development"].split,
  }
  return Stage(
    f"configs/finetune.py:{model},{task}",
    settings,
    name=f"{task}_{after.name}",
    after=after,
    choice=Choice(tuple(candidates), held_out),
  )


def hyperrule(task: str, texts: Mapping[str, str] | None = None) -> dict:
  """The settings that make the recipe of a task the BiT-HyperRule.

  Args:
    task: a key of `recipes.TASKS`.
    texts: settings of the command line, whose sides of images the rule follows as its recipe does.
  """
  sides = {key: text for key, text in (texts or {}).items() if key in SIDES}
  rule = recipe_file.replaced(of_task("R50x1", task, part="all", real=False), sides)
  return {
    "schedule.learning_rate": rule.schedule.learning_rate,
    "schedule.decay": rule.schedule.decay,
    "schedule.drops": rule.schedule.drops,
    "optimizer.clip_norm": rule.optimizer.clip_norm,
    "optimizer.ema": rule.optimizer.ema,
    "data.image_size": rule.data.image_size,
    "data.train_resize": rule.data.train_resize,
    "data.train_resize_ratio": rule.data.train_resize_ratio,
    "objective.mixup": rule.objective.mixup,
  }


def real(after: Stage) -> Stage:
  """Scores a fine-tuning on ImageNet by ReaL's labels; trains nothing."""
  labels = SETS["real"]
  settings = {
    "evaluate.test.source": labels.source,
    "evaluate.test.split": labels.split,
    "evaluate.test.label_key": labels.label_key,
  }
  return Stage(after.recipe, settings, name=f"real_{after.name}", after=after, mode="evaluate")


def scored(model: str, before: Stage, tasks: Mapping[str, str]) -> dict[str, Stage]:
  """The stages that score a pre-training, by the names that a table of the paper has for them.

  Args:
    model: the model of the weights.
    before: the pre-training.
    tasks: {name: key of `recipes.TASKS`}.
  """
  stages = {name: fine_tuning(model, task, before) for name, task in tasks.items()}
  return stages | {REAL: real(stages["ImageNet"])}
