"""Converts nested dictionaries to flat ones, with names such as "head/kernel", and back."""

import jax


def nest(flat: dict) -> dict:
  """{"a/b": x} -> {"a": {"b": x}}.

  Raises:
    ValueError: an array's name is also the first components of another array's name.
  """
  tree = {}
  for name, value in flat.items():
    *parents, last = name.split("/")
    node = tree
    for parent in parents:
      node = node.setdefault(parent, {})
      if not isinstance(node, dict):
        raise ValueError(f"{name} lies inside the name of another array")
    if last in node:
      raise ValueError(f"{name} is also the beginning of another array's name")
    node[last] = value
  return tree


def flatten(tree: dict) -> dict:
  """{"a": {"b": x}} -> {"a/b": x}.

  Raises:
    ValueError: two leaves have the same name, which can happen if a key contains a slash.
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


def named(tree) -> dict:
  """The leaves of any tree, by name."""
  return {name_of(path): leaf for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]}


def name_of(path) -> str:
  """A parameter's name, "Transformer/encoder_norm/scale", from its key path in the tree."""
  return jax.tree_util.keystr(path, simple=True, separator="/")
