"""Text for one line of a terminal, whatever a stranger's value in it holds."""


def one_line(text: str) -> str:
  """The text with line breaks and all else that is not printable written as escapes."""
  return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
