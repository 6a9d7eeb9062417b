"""How a setting is described: its default, meaning and bounds; groups of settings; facts.

A fact is what rules of settings read beside other settings. Whoever resolves settings says what is
known (`config.resolve.resolve`): a fact is a function of the settings, called when a rule needs it.
"""

import dataclasses
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import ClassVar

from vit_jax import registry

FACTS = {
  "images": "number of training images",
  "side": "median of the smaller sides of a sample of the training images, pixels",
  "scored_at_once": "images in a batch of an evaluation alone; 0: it is a training",
  "labels": "`Labels` of the training data",
  "class_shares": "share of each class in the training images as they are drawn, floats",
  "card": "how images are prepared for the same weights, `vit_jax.weights.card.Card`",
  "architecture": "config.Model of the weights in init_from, or of those scored, all fields given",
  "representation": "the features that the weights are trained for: pre_logits or patches",
  "fields": "what config.model.name stands for: a value of each field that its model has",
  "largest_side": "pixels -> the largest side up to them that the patches of config.model tile",
  "attention": "the library that computes the attention of config.model, cudnn or xla",
  "device": "one of those that compute, `jax.Device`",
  "devices": "number of devices",
  "parts": "(the fewest parts of a batch that fit into memory, the reckoning in words)",
}

OF_DEVICES = ("attention", "device", "devices", "parts")


@dataclasses.dataclass(frozen=True)
class Labels:
  """The labels of training data.

  Attributes:
    class_names: their names; () without labels.
    multi_label: whether an image has any number of labels.
  """

  class_names: Sequence[str] = ()
  multi_label: bool = False


# Upper bounds that several settings share; other bounds are given with their settings.
MAX_STEPS = 2**31 - 1  # optimizers count steps in int32

MAX_SIDE = 4096  # pixels, side of a model's input

MAX_PIXELS = 2 * MAX_SIDE  # side of an image before it is cropped

# A size in pixels: the side of a square, or (height, width) of another rectangle.
Size = int | tuple[int, int]

MAX_BATCH = 2**20  # images

MAX_NUMBER = 1e38  # float32 can hold it

AUTO = "auto"  # the value of a setting that is left to its rule

MAX_TEXT = 4096  # characters, the longest path

MAX_ITEMS = 2**16  # values in one setting, such as weights of classes


def sides(size: Size) -> tuple[int, int]:
  """The height and the width of a size."""
  if isinstance(size, tuple):
    return size
  return size, size


def as_size(value: int | Sequence[int]) -> Size:
  """A side, or height and width, as a size; equal ones become the side of the square.

  Raises:
    TypeError, ValueError: it is something else.
  """
  try:
    return _pixels(value)
  except TypeError:  # not one number
    height, width = map(_pixels, value)
  if height == width:
    return height
  return height, width


def _pixels(value) -> int:
  """A whole number as Python's own, also of NumPy or JAX; raises TypeError for anything else."""
  if isinstance(value, bool):
    raise TypeError(f"{value} is no number of pixels")
  return operator.index(value)


def read_size(text: str) -> Size:
  """A size as users write it: 224, 224x256 or (224, 256), the height first.

  Raises:
    ValueError: it is something else.
  """
  numbers = [int(number) for number in re.split("[x,]", text.strip("()[] "))]
  if len(numbers) == 1:
    return numbers[0]
  return as_size(numbers)


def scaled(size: Size, new: Size, old: Size) -> Size:
  """A size that belongs to images of size `old`, such as that of a crop, for images of `new`."""
  each = zip(sides(size), sides(new), sides(old), strict=True)
  return as_size([round(length * n / o) for length, n, o in each])


def covers(large: Size, small: Size) -> bool:
  """Whether the small rectangle fits into the large one."""
  return all(x >= y for x, y in zip(sides(large), sides(small), strict=True))


def in_pixels(size: Size, between: str = " x ") -> str:
  """A size in words, such as "224" or "224 x 256"; with "x", as `read_size` reads it."""
  if isinstance(size, tuple):
    return between.join(map(str, size))
  return str(size)


@dataclasses.dataclass(frozen=True)
class Rule:
  """How the value of a setting that is AUTO follows from others; `config.resolve` applies it.

  Attributes:
    reads: what decides: keys of settings; "asked.KEY", a setting as it was asked for, perhaps AUTO;
      and "facts.NAME" (vit_jax/config/fields.py).
    says: the rule in words, for the page of settings.
    derive: (their values, in this order; a fact is a function that returns it) -> the value, and
      where it comes from in this run, or "" if that is not worth a line.
    stays: whether a run that goes on keeps the value that it began with: "always"; "while" the
      settings that decide are as they were; or "never".
    beside: those of `reads` that decide for a new run alone.
  """

  reads: tuple[str, ...]
  says: str
  derive: Callable[..., tuple[object, str]]
  stays: str = "while"
  beside: tuple[str, ...] = ()


def setting(
  default, meaning, *, auto=None, usual=None, choices=(), low=None, high=None, off=None, used_if=()
):
  """A dataclass field with its meaning and its allowed values.

  Args:
    default: value if none is given.
    meaning: description, with the unit.
    auto: the `Rule` of a setting that may be AUTO.
    usual: of such a setting, a value that may also be given where the setting has no effect.
    choices: all allowed values, if they can be listed.
    low, high: bounds of a number, inclusive; every number has both.
    off: the only value allowed outside the bounds; it switches something off.
    used_if: conditions without which the setting has no effect (vit_jax/config/resolve.py). Each is
      (key of another setting, *values): the other must have one of the values, or, without values,
      must not be 0, False or empty. A key may also name what the class of a kind tells, such as
      "objective.trains_head".
  """
  check = dict(meaning=meaning, choices=choices, low=low, high=high, off=off, used_if=used_if)
  return dataclasses.field(default=default, metadata=check | {"auto": auto, "usual": usual})


class Added:
  """Base class of settings that an extra adds to a group: a dataclass with these fields.

  Attributes:
    of_memory: names of those that decide the memory of a step.
    without_steps: names of those that count although a run has no step left.
    of_host: names of those that each host may have of its own.
    of_start: names of those that only count from the start of a run.
    switch: name of the one without which the extra does nothing, and is not loaded; "": none.
  """

  of_memory: ClassVar[tuple[str, ...]] = ()
  without_steps: ClassVar[tuple[str, ...]] = ()
  of_host: ClassVar[tuple[str, ...]] = ()
  of_start: ClassVar[tuple[str, ...]] = ()
  switch: ClassVar[str] = ""


class Switched:
  """Base class of a group of settings that is false if it is switched off.

  Attributes:
    switch: name of the setting without which the group does nothing.
  """

  switch: ClassVar[str]

  def __bool__(self) -> bool:
    return bool(getattr(self, self.switch))


def added(group: str) -> tuple[type[Added], ...]:
  """The classes of settings that extras add to a group, as its base classes, the last one first."""
  names = [name for name in registry.SETTINGS if name.partition(".")[0] == group]
  return tuple(registry.SETTINGS[name] for name in reversed(names))


def of_added(group: str, what: str) -> tuple[str, ...]:
  """The names that extras list in one attribute of `Added`, for a group of settings."""
  return tuple(name for kind in added(group) for name in getattr(kind, what))


def switched_on(extras: registry.Registry, config) -> list:
  """The members of a registry, without those whose settings switch them off.

  Args:
    extras: the registry; settings that an extra adds have its name (`registry.SETTINGS`).
    config: the settings of the run.
  """
  off = set()
  for path, kind in registry.SETTINGS.items():
    group, _, name = path.partition(".")
    values = config if group == "run" else getattr(config, group)
    if kind.switch and not getattr(values, kind.switch):
      off.add(name)
  return [extras[name] for name in extras if name not in off]


def name_of_kind(name: str, meaning: str):
  """The field `kind` of the settings of one kind; an instance cannot be given another name."""
  return dataclasses.field(default=name, init=False, metadata=setting(name, meaning).metadata)


@dataclasses.dataclass(frozen=True)
class Group:
  """The groups of settings that a field holds: one, any number by name, or a list.

  Attributes:
    kinds: a registry of the kinds, or {"": the class of settings} if there is only one.
    default: the kind of a group that does not say its own; "": each group must say it.
    by_name: whether the field holds groups by name.
    listed: whether the field holds a list of groups, as a tuple. It is set as a whole.
  """

  kinds: Mapping[str, object]
  default: str = ""
  by_name: bool = False
  listed: bool = False

  def kind(self, values: Mapping[str, object]) -> str:
    """The kind that these values name; it may not exist."""
    if "" in self.kinds:
      return ""
    return values.get("kind", self.default)

  def settings(self, kind: str) -> type:
    """The dataclass with the settings of a kind; imports its file."""
    member = self.kinds[kind]
    return getattr(member, "Settings", member)

  def classes(self) -> Iterator[tuple[str, type]]:
    """(kind, its dataclass) of every kind; imports all of them."""
    return ((kind, self.settings(kind)) for kind in self.kinds)

  def example(self) -> str:
    """An example of a list of groups, for messages."""
    return repr([{"kind": next(iter(self.kinds))}])

  def new(self) -> object:
    """A group of the default kind."""
    return self.settings(self.default)()


def group_in(field: dataclasses.Field) -> Group | None:
  """The groups that a field holds; None if the field is one setting."""
  return field.metadata.get("group")


def group(settings: type, *, auto: Rule | None = None, used_if=(), **changes):
  """A field that holds a dataclass of further settings, with some defaults changed.

  `used_if`, as for `setting`, holds for each setting of the group; with a rule `auto`, the group as
  a whole may be AUTO (`Duration`).
  """
  metadata = dict(group=Group({"": settings}), meaning="", used_if=used_if, auto=auto)
  return dataclasses.field(default_factory=lambda: settings(**changes), metadata=metadata)


def rule_of(field: dataclasses.Field) -> Rule | None:
  """The rule of a setting that may be AUTO."""
  return field.metadata.get("auto")


def named(settings: type, meaning: str):
  """A field that holds any number of groups of settings by name."""
  return _by_name(Group({"": settings}, by_name=True), meaning)


def group_of_kind(kinds: Mapping[str, object], *, default: str):
  """A field that holds the settings of one kind of a registry, with the kind as its `kind`."""
  of_kind = Group(kinds, default)
  return dataclasses.field(default_factory=of_kind.new, metadata=dict(group=of_kind, meaning=""))


def named_of_kind(kinds: Mapping[str, object], meaning: str, *, default: str):
  """A field that holds any number of groups by name, each of one kind of a registry."""
  return _by_name(Group(kinds, default, by_name=True), meaning)


def listed_of_kind(kinds: Mapping[str, object], meaning: str):
  """A field that holds a list of groups, each of the kind of a registry that it names."""
  groups = Group(kinds, listed=True)
  return dataclasses.field(default=(), metadata=dict(group=groups, meaning=meaning))


def _by_name(groups: Group, meaning: str):
  return dataclasses.field(default_factory=dict, metadata=dict(group=groups, meaning=meaning))


def whole_interval(interval: float, length: float) -> int:
  """The whole number nearest to an interval; the next one, if that came once more in `length`.

  A tenth of 581 steps is 59 steps: with 58, an eleventh would come a step after the tenth.
  """
  nearest = max(1, round(interval))
  times = math.ceil((length - 0.5) / interval)  # the length itself may be rounded up
  if math.ceil(length / nearest) > times:
    return math.ceil(interval)
  return nearest


@dataclasses.dataclass(frozen=True)
class Duration:
  """A length of training in exactly one unit; if all three are 0, it means never."""

  steps: int = setting(0, "optimizer updates", low=0, high=MAX_STEPS)
  epochs: float = setting(
    0.0,
    "passes over the training examples; for a mix, over as many as all its sources have",
    low=0,
    high=1e9,
  )
  examples: int = setting(0, "training examples", low=0, high=10**15)

  def __bool__(self) -> bool:
    return bool(self.given())

  def given(self) -> dict[str, float]:
    """The units that are not 0."""
    return {unit: value for unit, value in dataclasses.asdict(self).items() if value}

  def in_steps(
    self, *, batch_size: int, epoch_examples: int, step: int = 0, images: int = 0
  ) -> int:
    """The duration rounded to whole steps; at least 1 unless the duration is 0.

    Args:
      batch_size: of the steps after `step`.
      epoch_examples: the training examples.
      step, images: a run took `images` images in its first `step` steps, whatever their batch
        sizes; the duration counts from its start. Lengths in steps stay as they are.
    """
    if not self.given():
      return 0
    examples = self.examples + self.epochs * epoch_examples
    if examples:
      examples += step * batch_size - images
    return max(1, self.steps + round(examples / batch_size))

  def exact_steps(self, *, batch_size: int, epoch_examples: Callable[[], int]) -> float:
    """The duration in steps, not rounded; `epoch_examples` is asked only if they count."""
    passes = self.epochs * epoch_examples() if self.epochs else 0
    return self.steps + (self.examples + passes) / batch_size

  def part(self, parts: int) -> "Duration":
    """The duration divided by `parts`, in the same unit; at least one whole step or example."""
    return self._divided(parts, lambda count: max(1, round(count / parts)))

  def every_part(self, parts: int) -> "Duration":
    """As `part`, for what comes `parts` times in the duration: see `whole_interval`."""
    return self._divided(parts, lambda count: whole_interval(count / parts, count))

  def _divided(self, parts: int, divided: Callable[[int], int]) -> "Duration":
    steps, examples = (divided(count) if count else 0 for count in (self.steps, self.examples))
    return Duration(steps, self.epochs / parts, examples)


LEFT_TO_RULE = Duration(AUTO, AUTO, AUTO)


def length(*, auto: Rule | None = None, used_if=(), **units):
  """A field that holds a duration; with a rule and without units, it is left to the rule."""
  if auto and not units:
    units = dataclasses.asdict(LEFT_TO_RULE)
  return group(Duration, auto=auto, used_if=used_if, **units)


def is_auto(value) -> bool:
  """Whether the value of a setting, or of a duration, is left to its rule."""
  return value in (AUTO, LEFT_TO_RULE)
