"""The page of all settings, docs/settings.md, from their own descriptions."""

import dataclasses
import html
from collections.abc import Mapping
from typing import get_args, get_origin

from vit_jax.config.run import Config

_BEGIN = """# Settings

This page is made by `python tools/settings.py --output docs/settings.md` from the descriptions in
the code; do not edit it here.

Give any setting on the command line, such as `--config.batch_size=512` or
`--config.model.depth=6`. Each recipe in `configs/` sets some of them; the others have the defaults
below. A value out of range ends the command with one sentence, before any device is used.
"""


def page() -> str:
  """The page as Markdown: a section for each group of settings."""
  return "\n".join([_BEGIN, *(section(kind, paths) for kind, paths in groups().items())])


def groups() -> dict[type, list[str]]:
  """Every kind of group, in the order of `Config`, with the keys of its groups."""
  found = {}
  _collect(Config, "config", found)
  return found


def section(kind: type, paths: list[str]) -> str:
  """The heading, the meaning and the table of one kind of group."""
  places = "" if [heading(kind, paths)] == paths else f"Groups of this kind: {_codes(paths)}.\n\n"
  rows = [row(field) for field in dataclasses.fields(kind)]
  table = "| setting | default | meaning |\n|---|---|---|\n" + "\n".join(rows)
  return f"## {heading(kind, paths)}\n\n{kind.__doc__.strip()}\n\n{places}{table}\n"


def heading(kind: type, paths: list[str]) -> str:
  """The key of the group if it is the only one of its kind, else the name of the kind."""
  return paths[0] if len(paths) == 1 else kind.__name__


def row(field: dataclasses.Field) -> str:
  """The line of one setting, or of a group inside the group."""
  inner = _inner(field)
  if not inner:
    meaning = _cell(field.metadata["meaning"]) + _range(field) + _conditions(field)
    return f"| {_code(field.name)} | {_code(field.default)} | {meaning} |"
  name = f"{field.name}.NAME" if _is_named(field) else field.name
  meaning = field.metadata.get("meaning", "")
  told = f"{_cell(meaning)}: see {_link(inner)}" if meaning else f"see {_link(inner)}"
  return f"| {_code(name)} | {_changed(field)} | {told}{_conditions(field)} |"


def _collect(kind, path, found):
  found.setdefault(kind, []).append(path)
  for field in dataclasses.fields(kind):
    if inner := _inner(field):
      _collect(inner, f"{path}.{field.name}" + ".NAME" * _is_named(field), found)


def _is_named(field) -> bool:
  return get_origin(field.type) is Mapping


def _inner(field) -> type | None:
  """The kind of group that a field holds; None if the field is one setting."""
  kind = get_args(field.type)[1] if _is_named(field) else field.type
  return kind if dataclasses.is_dataclass(kind) else None


def _link(kind) -> str:
  text = heading(kind, groups()[kind])
  return f"[{text}](#{text.lower().replace('.', '').replace(' ', '-')})"


def _changed(field) -> str:
  """The defaults of a group that differ from those of its kind."""
  if _is_named(field):
    return "none"
  group, usual = field.default_factory(), _inner(field)()
  names = [part.name for part in dataclasses.fields(group)]
  changed = [name for name in names if getattr(group, name) != getattr(usual, name)]
  return ", ".join(_code(f"{name}={getattr(group, name)}") for name in changed)


def _range(field) -> str:
  check = field.metadata
  if check["choices"]:
    return f" ({', '.join(map(_code, check['choices']))})"
  if check["low"] is None:
    return ""
  off = "" if check["off"] is None else f", or {check['off']:g}"
  return f" ({_number(check['low'])} to {_number(check['high'])}{off})"


def _conditions(field) -> str:
  """Says which other settings are needed for this one to have an effect."""
  told = [
    " or ".join(f"`config.{key}={value}`" for value in values) or f"`config.{key}`"
    for key, *values in field.metadata.get("used_if", ())
  ]
  return f"; only with {' and '.join(told)}" if told else ""


def _number(value) -> str:
  return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def _codes(values) -> str:
  return ", ".join(map(_code, values))


def _code(value) -> str:
  """A value as code; a vertical bar in a table must be written as an HTML entity."""
  text = str(value)
  if "|" in text:
    return f"<code>{_cell(text)}</code>"
  return f"`{text}`" if text else "empty"


def _cell(text: str) -> str:
  """Text for a cell of a table, with the special characters of Markdown and HTML escaped."""
  text = html.escape(text, quote=False)
  for sign in "*[|":
    text = text.replace(sign, f"&#{ord(sign)};")
  return text
