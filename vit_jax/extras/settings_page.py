"""The page of all settings, docs/settings.md, from their own descriptions."""

import dataclasses
import html
import inspect
import re

from vit_jax.config.fields import AUTO, Group, group_in, is_auto, rule_of
from vit_jax.config.resolve import of_kinds
from vit_jax.config.run import Config

_BEGIN = """# Settings

This page is made by `python tools/settings.py --output docs/settings.md` from the descriptions in
the code; do not edit it here.

Give any setting on the command line, such as `--config.batch_size=512` or
`--config.model.depth=6`. Each recipe in `configs/` sets some of them; the others have the defaults
below. Where the default is `auto`, the value follows from what is named behind "auto:". A value out
of range ends the command with one sentence, before any device is used.
"""


def page() -> str:
  """The page as Markdown: a section for each group of settings."""
  return "\n".join([_BEGIN, *(section(kind, paths) for kind, paths in groups().items())])


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


def section(kind: type, paths: list[str]) -> str:
  """The heading, the meaning and the table of one kind of group."""
  places = ""
  if [heading(kind, paths)] != paths:
    places = f"Groups of this kind: {_codes(paths)}.\n\n"
  own_first = sorted(dataclasses.fields(kind), key=lambda field: field.kw_only)  # not an extra's
  rows = [row(field) for field in own_first]
  table = "| setting | default | meaning |\n|---|---|---|\n" + "\n".join(rows)
  return f"## {heading(kind, paths)}\n\n{inspect.cleandoc(kind.__doc__)}\n\n{places}{table}\n"


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
    return f"| {_code(field.name)} | {_code(field.default)} | {meaning} |"
  links = " or ".join(_link(settings) for _, settings in group.classes())
  meaning = f"see {links}"
  if field.metadata["meaning"]:
    meaning = f"{_cell(field.metadata['meaning'])}: {meaning}"
  meaning += _rule(field) + _conditions(field)
  return f"| {_code(_name(field, group))} | {_changed(field, group)} | {meaning} |"


def _collect(settings, path, places, kind=""):
  places.setdefault(settings, []).append(f"{path}{kind}")
  for field in dataclasses.fields(settings):
    if group := group_in(field):
      for name, inner in group.classes():
        of_kind = f" with kind={name}" if name else kind
        _collect(inner, f"{path}.{_name(field, group)}", places, of_kind)


def _name(field, group: Group) -> str:
  return field.name + ".NAME" * group.by_name + "[N]" * group.listed


def _link(kind) -> str:
  text = heading(kind, groups()[kind])
  return f"[{text}](#{re.sub('[^a-z0-9_ -]', '', text.lower()).replace(' ', '-')})"


def _changed(field, group: Group) -> str:
  """The defaults of a group that differ from those of its class, or its kind."""
  if group.by_name or group.listed:
    return "none"
  if group.default:
    return _code(f"kind={group.default}")
  default = field.default_factory()
  if is_auto(default):
    return _code(AUTO)
  usual = group.new()
  names = [inner.name for inner in dataclasses.fields(default)]
  changed = [name for name in names if getattr(default, name) != getattr(usual, name)]
  return ", ".join(_code(f"{name}={getattr(default, name)}") for name in changed)


def _range(field) -> str:
  check = field.metadata
  if check["choices"]:
    return f" ({', '.join(map(_code, check['choices']))})"
  if check["low"] is None:
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


def _codes(values) -> str:
  return ", ".join(map(_code, values))


def _code(value) -> str:
  """A value as code; a vertical bar in a table must be written as an HTML entity."""
  text = str(value)
  if not text:
    return "empty"
  if "|" in text:
    return f"<code>{_cell(text)}</code>"
  return f"`{text}`"


def _cell(text: str) -> str:
  """Text for a cell of a table, with the special characters of Markdown and HTML escaped."""
  text = html.escape(text, quote=False)
  for sign in "*[|":
    text = text.replace(sign, f"&#{ord(sign)};")
  return text
