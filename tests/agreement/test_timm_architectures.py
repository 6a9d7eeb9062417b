"""Every architecture of timm's plain ViTs: the same parameters, and the same outputs from weights.

Needs torch and timm (the extra `agreement`); skipped, with this reason, where they are not there.
`python -m tests.agreement.architectures` compares the outputs of all names.
"""

import collections
import importlib

import pytest

from vit_jax import models

# Of timm 1.0.31.
MADE = 280
REFUSED = {"windows of attention": 4, "another stem of convolutions": 5, "the name": 14}
ACTIVATIONS = {"GELU": "gelu", "GELUTanh": "gelu_tanh", "QuickGELU": "quick_gelu", "SiLU": "silu"}
# A name for each set of parts.
NAMES = ("test_vit3",)


@pytest.fixture(scope="module")
def peer():
  """The comparison, which imports torch and timm."""
  importlib.import_module("tests.agreement.timm_models")  # skips without them
  return importlib.import_module("tests.agreement.architectures")


def epsilon_of(block):
  """Of the first norm of a block."""
  return next(x.eps for x in block.modules() if "Norm" in type(x).__name__ and hasattr(x, "eps"))


def activation_of(block):
  kinds = {type(x).__name__ for x in block.modules()} & ACTIVATIONS.keys()
  return ACTIVATIONS[kinds.pop()]


def test_every_name_is_made_of_the_same_arrays_or_refused_by_its_part(peer, monkeypatch):
  """What arrays do not show, such as depth, activation and epsilon, is compared too."""
  refused = collections.Counter()
  made = 0
  for name in peer.names():
    if what := peer.lacking(name):
      refused[what] += 1
      continue
    made += 1
    with monkeypatch.context() as patch:
      theirs, arguments = peer.theirs_of(name, patch)
    module = models.create(name)
    side = 224
    if "resnetv2" not in name:
      side = module.stride() * theirs.patch_embed.grid_size[0]
      block = theirs.blocks[0]
      expected = (arguments["depth"], arguments["num_heads"], epsilon_of(block))
      assert (module.depth, module.heads, module.norm_epsilon) == expected, name
      assert module.activation == activation_of(block), name
    state = {key: tuple(x.shape) for key, x in theirs.state_dict().items()}
    ours = peer.shapes_of(name, side)
    for flat in (state, ours):
      for key in ("head.weight", "head.bias"):
        flat.pop(key, None)  # CLIP's have another number of outputs
      _without_places(flat)
    assert ours == state, name
  assert made >= MADE
  assert refused == REFUSED


def _without_places(flat):
  """Position embeddings for patches alone are as good as those with zeros for other tokens."""
  if "pos_embed" in flat:
    flat["pos_embed"] = flat["pos_embed"][-1]


@pytest.mark.parametrize("name", NAMES)
def test_outputs_are_those_of_timm_at_two_sizes(peer, tmp_path, name):
  assert max(peer.compare(name, tmp_path)) < peer.BOUND
