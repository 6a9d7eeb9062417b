"""Turns the parts of a report into one page of HTML that asks nobody for anything."""

import functools
from collections.abc import Sequence

import jinja2

from vit_jax.process.text import one_line
from vit_jax.report.document import Section

TEMPLATE = "page.html.jinja"


def html(title: str, sections: Sequence[Section]) -> str:
  """The page; every text in it is escaped, and its unprintable characters too."""
  return template().render(title=title, sections=sections)


@functools.cache
def template() -> jinja2.Template:
  """The template of all reports, in this package."""
  environment = jinja2.Environment(
    loader=jinja2.PackageLoader("vit_jax.report", ""),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    finalize=printable,
    trim_blocks=True,
    lstrip_blocks=True,
  )
  return environment.get_template(TEMPLATE)


def printable(value):
  """A text without unprintable characters; parts of the page itself stay as they are."""
  return one_line(value) if isinstance(value, str) and not hasattr(value, "__html__") else value
