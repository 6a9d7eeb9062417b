"""Reads a page of HTML: headings, tables, pictures, text and tags."""

import html.parser
import re

OF = re.compile(r" \((evaluations|[\w ]+): .*\)$")
VOID = {"meta", "link", "img", "br"}


class Page(html.parser.HTMLParser):
  """A page.

  Attributes:
    headings: (level, text) in order.
    tables: rows by caption, without what the table is of; a row is its cells' texts.
    captions: all whole captions of tables.
    values: the exact numbers of the cells, by caption and text of the row's first cell.
    pictures: attributes of each picture.
    tags: of all elements, with their attributes.
    text: everything that is read.
  """

  def __init__(self, text):
    super().__init__()
    self.headings, self.tables, self.values, self.pictures, self.tags = [], {}, {}, [], []
    self.text, self._open, self._caption, self.captions = "", [], "", []
    self.feed(text)
    self.close()
    assert self._open == [], "elements are not closed"

  def handle_starttag(self, tag, attrs):
    self.tags.append((tag, dict(attrs)))
    if tag not in VOID:
      self._open.append(tag)
    if tag in ("caption", "h1", "h2", "h3", "h4", "h5"):
      self._words = ""
    if tag == "tr":
      self._row, self._exact = [], []
    if tag in ("th", "td"):
      self._row.append("")
    if tag == "data":
      self._exact.append(float(dict(attrs)["value"]))
    if tag == "img":
      self.pictures.append(dict(attrs))

  def handle_endtag(self, tag):
    assert self._open.pop() == tag
    if tag[0] == "h" and tag[1:].isdecimal():
      self.headings.append((int(tag[1]), self._words))
    if tag == "caption":
      self.captions.append(self._words)
      self._caption = OF.sub("", self._words)
      self.tables.setdefault(self._caption, [])
    if tag == "tr":
      self.tables[self._caption].append(self._row)
      self.values[self._caption, self._row[0]] = self._exact

  def handle_data(self, data):
    if "style" in self._open:
      return
    self.text += data
    if "tr" in self._open:
      self._row[-1:] = [(self._row[-1] + data).strip()] if self._row else []
    if hasattr(self, "_words"):
      self._words += data
