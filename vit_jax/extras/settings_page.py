"""The page of all settings, docs/settings.md, from their own descriptions."""

import dataclasses
import html
import inspect
import re

from vit_jax.config.data import Dataset
from vit_jax.config.fields import AUTO, Group, group_in, is_auto, rule_of
from vit_jax.config.learning import Optimizer
from vit_jax.config.resolve import of_kinds
from vit_jax.config.run import Config

_BEGIN = """# Settings

This page is made by `python tools/settings.py --output docs/settings.md` from the descriptions in
the code; do not edit it here.

Give any setting on the command line, such as `--config.batch_size=512` or
`--config.model.depth=6`. Recipes set some of them; the others have the defaults below. "auto:" says
what an `auto` value follows from. Ranges that end at a million or more are left out. A value out of
range ends the command before a device is used.
"""

_SHARED = (Dataset, Optimizer)  # what several kinds of group have stands once


_ENDLESS = 10**6  # a range up to here or further says nothing to a reader
_LONG = 50  # characters of a default that would make the first column too wide for a phone


def page() -> str:
  """The page as Markdown: a section for each group of settings."""
  return "\n".join([_BEGIN, *(section(kind, paths) for kind, paths in sections().items())])


def sections() -> dict[type, list[str]]:
  """`groups`, with the classes whose settings several of them share."""
  places = {}
  for kind, paths in groups().items():
    if base := base_of(kind):
      places.setdefault(base, [paths[0].partition(" with ")[0]])
    places[kind] = paths
  return places


def groups() -> dict[type, list[str]]:
  """Every kind of group, in the order of `Config`, with the keys of its groups."""
  places = {}
  _collect(Config, "config", places)
  return places


def keys() -> set[str]:
  """The key of every setting and group, with NAME for a name that the recipe chooses."""
  places = [(path.split()[0], kind) for kind, paths in groups().items() for path in paths]
  inside = {f"{path}.{field.name}" for path, kind in places for field in dataclasses.fields(kind)}
  return inside | {path for path, _ in places}


def base_of(kind: type) -> type | None:
  """The class from which the kind has settings that stand in a section of their own."""
  return next((base for base in _SHARED if issubclass(kind, base) and kind is not base), None)


def section(kind: type, paths: list[str]) -> str:
  """The heading, the meaning and the table of one kind of group."""
  parts = [f"## {heading(kind, paths)}", about(kind)]
  if [heading(kind, paths)] != paths:
    parts.append(f"For {_codes(dict.fromkeys(path.partition(' with ')[0] for path in paths))}.")
  elsewhere = ()
  if base := base_of(kind):
    elsewhere = dataclasses.fields(base)
    parts.append(f"It also has the settings of {_link(base)}.")
  own_first = sorted(dataclasses.fields(kind), key=lambda field: field.kw_only)  # not an extra's
  rows = [row(field) for field in own_first if field not in elsewhere and field.init]
  if rows:
    parts.append("| setting = default | meaning |\n|---|---|\n" + "\n".join(rows))
  return "\n\n".join(parts) + "\n"


def about(kind: type) -> str:
  """The docstring up to its source or attributes; what follows is for readers of the code."""
  text = inspect.cleandoc(kind.__doc__).partition("\n\nAttributes:")[0]
  use, begin, rest = text.partition("\n\nSource:")
  return use + begin + rest.partition("\n\n")[0]


def heading(kind: type, paths: list[str]) -> str:
  """The key of the group if it is the only one of its kind, else the name of the kind."""
  if len(paths) == 1:
    return paths[0]
  return kind.__name__


def row(field: dataclasses.Field) -> str:
  """The line of one setting, or of a group inside the group."""
  group = group_in(field)
  if not group:
    meaning = _cell(field.metadata["meaning"]) + _range(field) + _rule(field) + _conditions(field)
    given = f"{field.name} = {_value(field.default)}"
    if len(given) > _LONG:
      return f"| {_code(field.name)} | {meaning}; default: {_code(_value(field.default))} |"
    return f"| {_code(given)} | {meaning} |"
  meaning = "; ".join(_choice(*choice) for choice in group.classes())
  if field.metadata["meaning"]:
    meaning = f"{_cell(field.metadata['meaning'])}: {meaning}"
  meaning += _rule(field) + _conditions(field)
  return f"| {_given(field, group)} | {meaning} |"


def _collect(settings, path, places, kind=""):
  places.setdefault(settings, []).append(f"{path}{kind}")
  for field in dataclasses.fields(settings):
    if group := group_in(field):
      for name, inner in group.classes():
        of_kind = f" with kind={name}" if name else kind
        _collect(inner, f"{path}.{_name(field, group)}", places, of_kind)


def _name(field, group: Group) -> str:
  return field.name + ".NAME" * group.by_name + "[N]" * group.listed


def _choice(name, settings) -> str:
  """A link to the only kind of a group, or to one of its kinds, with what it is."""
  if not name:
    return f"see {_link(settings)}"
  (kind,) = (field for field in dataclasses.fields(settings) if field.name == "kind")
  return f"{_link(settings, name)}, {_cell(kind.metadata['meaning'])}"


def _link(kind, text="") -> str:
  title = heading(kind, sections()[kind])
  anchor = re.sub("[^a-z0-9_ -]", "", title.lower()).replace(" ", "-")
  return f"[{text or title}](#{anchor})"


def _given(field, group: Group) -> str:
  """The name of a group, with the defaults that differ from those of its class, or its kind."""
  name = _name(field, group)
  if group.by_name or group.listed:
    return _code(name)
  if group.default:
    return _code(f"{name}.kind = {group.default}")
  default = field.default_factory()
  if is_auto(default):
    return _code(f"{name} = {AUTO}")
  usual = group.new()
  names = [inner.name for inner in dataclasses.fields(default)]
  changed = [inner for inner in names if getattr(default, inner) != getattr(usual, inner)]
  return _codes(f"{name}.{inner} = {getattr(default, inner)}" for inner in changed) or _code(name)


def _range(field) -> str:
  check = field.metadata
  codes = [_code(_value(choice)) for choice in check["choices"]]
  if codes and any(code not in check["meaning"] for code in codes):
    return f" ({', '.join(codes)})"
  if check["low"] is None or check["high"] >= _ENDLESS:
    return ""
  off = ""
  if check["off"] is not None:
    off = f", or {check['off']:g}"
  return f" ({_number(check['low'])} to {_number(check['high'])}{off})"


def _rule(field) -> str:
  """Says what decides the value of a setting that is left to its rule."""
  rule = rule_of(field)
  if rule is None:
    return ""
  return f"; {AUTO}: {_cell(rule.says)}"


def _conditions(field) -> str:
  """Says which other settings are needed for this one to have an effect."""
  needed = [
    " or ".join(f"`config.{key}={value}`" for value in values) or f"`config.{key}`"
    for key, *values in map(of_kinds, field.metadata.get("used_if", ()))
  ]
  if not needed:
    return ""
  return f"; only with {' and '.join(needed)}"


def _number(value) -> str:
  if isinstance(value, int):
    return f"{value:,}"
  return f"{value:g}"


def _value(value) -> str:
  """A value as text; quotes stand for the empty text."""
  return str(value) or '""'


def _codes(values) -> str:
  return ", ".join(map(_code, values))


def _code(value) -> str:
  """A value as code; a vertical bar in a table must be written as an HTML entity."""
  text = str(value)
  if "|" in text:
    return f"<code>{_cell(text)}</code>"
  return f"`{text}`"


def _cell(text: str) -> str:
  """Text for a cell of a table, with the special characters of Markdown and HTML escaped."""
  text = html.escape(text, quote=False)
  for sign in "*[|":
    text = text.replace(sign, f"&#{ord(sign)};")
  return text
