"""Between nested dictionaries and flat ones with names such as "Transformer/encoder_norm/scale"."""

import jax


def nest(flat: dict) -> dict:
  """{"a/b": x} -> {"a": {"b": x}}.

  Raises:
    ValueError: a name that is both an array and the beginning of another's.
  """
  tree = {}
  for name, value in flat.items():
    *parents, last = name.split("/")
    node = tree
    for parent in parents:
      node = node.setdefault(parent, {})
      if not isinstance(node, dict):
        raise ValueError(f"{name} lies inside of another array's name")
    if last in node:
      raise ValueError(f"{name} is the beginning of other arrays' names")
    node[last] = value
  return tree


def flatten(tree: dict) -> dict:
  """{"a": {"b": x}} -> {"a/b": x}.

  Raises:
    ValueError: two leaves of the same name, as there may be where a key itself holds a slash.
  """
  leaves = list(_leaves(tree))
  flat = dict(leaves)
  if len(flat) < len(leaves):
    raise ValueError("two arrays have the same name")
  return flat


def _leaves(tree):
  for name, value in tree.items():
    if isinstance(value, dict):
      yield from ((f"{name}/{inner}", leaf) for inner, leaf in _leaves(value))
    else:
      yield name, value


def name_of(path) -> str:
  """A parameter's name, "Transformer/encoder_norm/scale", from its key path in the tree."""
  return jax.tree_util.keystr(path, simple=True, separator="/")
