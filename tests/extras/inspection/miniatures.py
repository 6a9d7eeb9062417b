"""One small model of each family, with parameters of the usual size, and images for it."""

import functools

from tests import modules
from tests.golden import weights as golden
from tests.weights import families

IMAGES = golden.images(16)


@functools.cache
def model(family, side=16, **options):
  """Module and parameters; hybrids have a stride of 8 pixels."""
  if family == "hybrid":
    options |= dict(stages=(1, 1), stem_width=32)
  module = families.module(family, **options)
  return module, modules.parameters(module, golden.images(side), train=False)
