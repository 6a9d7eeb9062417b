"""Names of classes and images in pictures."""

from vit_jax.process.text import one_line

LONGEST = 24  # characters


def label(name: str) -> str:
  """A name as text of a picture: short, on one line, and nothing in it is a formula."""
  # Matplotlib would set text between dollar signs as a formula.
  return one_line(name)[:LONGEST].replace("$", r"\$")
