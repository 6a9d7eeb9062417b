"""Differences between two models, apart from their heads."""

# Fields that are compared.
FIELDS = (
  *("patch", "depth", "width", "mlp_dim", "heads", "stages", "stem_width", "axial", "pool"),
  *("positions", "position_place", "activation", "norm_epsilon"),
)


def differences(there, here) -> list[str]:
  """Describes each difference between two modules; [] if they differ at most in their heads."""
  kinds = type(there).__name__, type(here).__name__
  if kinds[0] != kinds[1]:
    return ["they are a {} there and a {} here".format(*kinds)]
  pairs = {key: (getattr(there, key, None), getattr(here, key, None)) for key in FIELDS}
  return [f"{key} is {a} there and {b} here" for key, (a, b) in pairs.items() if a != b]
