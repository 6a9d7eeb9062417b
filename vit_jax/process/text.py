"""Text for one line of a terminal, whatever a stranger's value in it holds."""

from collections.abc import Sequence

MOST_SHOWN = 200  # characters of a value
MOST_DIGITS = 40
BEGINNING, ENDING = 2_000, 1_000  # characters that are kept of a longer message


def one_line(text: str) -> str:
  """The text with line breaks and all else that is not printable written as escapes.

  The middle of a text of more than 3,000 characters is left out.
  """
  if len(text) > BEGINNING + ENDING:
    text = f"{text[:BEGINNING]} ... {text[-ENDING:]}"
  return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def shown(value) -> str:
  """A value in a message: not long, nor refused by Python as ints of thousands of digits are."""
  if type(value) is int and abs(value) >= 10**MOST_DIGITS:
    return f"a number of more than {MOST_DIGITS} digits"
  if isinstance(value, tuple):
    text = f"({', '.join(map(shown, value))}{',' * (len(value) == 1)})"
  else:
    text = repr(value)
  return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."


def first_difference(some: Sequence[str], others: Sequence[str], whose: str) -> str:
  """Where two lists of class names begin to differ, in words."""
  for i, (a, b) in enumerate(zip(some, others, strict=False)):
    if a != b:
      return f"class {i} is {a!r} there and {b!r} in {whose}"
  return f"the first {min(len(some), len(others))} are equal"
