"""The console script vit-jax: outside the package, because another package has its name.

google-research/vision_transformer installs a `vit_jax` too. Where Python finds that one first,
nothing of this package could say so.
"""

import sys

import vit_jax


def run():
  """Runs `vit_jax.extras.commands.main.run`; one sentence if Python finds another vit_jax."""
  if not hasattr(vit_jax, "__version__"):
    sys.exit(
      f"vit-jax: Python finds another package vit_jax, in {vit_jax.__path__[0]!r}, before this "
      "one; remove it from PYTHONPATH, or give each an environment of its own."
    )
  from vit_jax.extras.commands import main

  main.run()
