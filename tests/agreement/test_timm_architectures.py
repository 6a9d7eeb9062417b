"""Every architecture of timm's plain ViTs: the same parameters, and the same outputs from weights.

Needs torch and timm (the extra `agreement`); skipped, with this reason, where they are not there.
`python -m tests.agreement.architectures` compares the outputs of all names.
"""

import collections
import importlib

import pytest

from vit_jax import models
from vit_jax.extras.commands import cost as tool
from vit_jax.extras.formats import timm
from vit_jax.models.recognition import differences
from vit_jax.recipes import cost

# Of timm 1.0.31.
MADE = 285
REFUSED = {
  "another stem of convolutions, which no model here has": 5,
  "another stem or normalisation than BiT, which no model here has": 13,
}
ACTIVATIONS = {"GELU": "gelu", "GELUTanh": "gelu_tanh", "QuickGELU": "quick_gelu", "SiLU": "silu"}
# Names that have all parts between them.
NAMES = (
  "aimv2_large_patch14_224",
  "beit_base_patch16_224",
  "deit_tiny_distilled_patch16_224",
  "samvit_base_patch16",
  "resnetv2_50d_gn",
  "eva02_enormous_patch14_clip_224",
  "eva02_large_patch14_clip_224",
  "vit_base_patch16_xp_224",
  "vit_dpwee_patch16_reg1_gap_256",
  "vit_large_patch16_sapiens2",
  "vit_pe_core_base_patch16_224",
  "vit_small_patch16_18x2_224",
  "vit_small_patch16_rope_mixed_ape_224",
  "vit_srelpos_small_patch16_224",
)
# Of these, those with tables that are resized or rotary positions.
RESIZED = {
  "beit_base_patch16_224",
  "eva02_large_patch14_clip_224",
  "samvit_base_patch16",
}


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
  """What arrays do not show, such as depth, heads, activation and epsilon, is compared too."""
  refused = collections.Counter()
  count, made, alike = 0, {}, set()
  for name in peer.names():
    if what := peer.lacking(name):
      refused[what] += 1
      continue
    count += 1
    with monkeypatch.context() as patch:
      theirs, arguments = peer.theirs_of(name, patch, made)
    ours = models.create(name)
    if "resnetv2" not in name:
      block = theirs.blocks[0]
      expected = (arguments["depth"], arguments["num_heads"], epsilon_of(block))
      assert (ours.depth, ours.heads, ours.norm_epsilon) == expected, name
      assert ours.activation == activation_of(block), name
      ours = ours.clone(depth=1, kv_heads_from=0)
    if (theirs, ours) in alike:  # as another name, which was compared
      continue
    alike.add((theirs, ours))
    state = theirs.state_dict()
    tree = peer.in_our_tree(state, ours)
    settings = models.settings_of(ours)
    assert not differences(models.module_of(tree, settings), ours), name
    again = timm.to_timm(tree, settings)
    assert {k: x.shape for k, x in again.items()} == {k: x.shape for k, x in state.items()}, name
  assert count >= MADE
  assert refused == REFUSED


def test_the_cost_of_every_name_is_known(peer):
  """Of the paper's pre-training; nothing is traced."""
  names = [name for name in peer.names() if not peer.lacking(name)]
  runs = tool.chosen(tool.flags().parse_args(["--model", *names]))
  assert len(runs) >= MADE
  assert all(cost.forward_macs(run) > 1e6 for run in runs)


@pytest.mark.parametrize("name", NAMES)
def test_outputs_are_those_of_timm_at_other_sizes(peer, tmp_path, name):
  """The program compares all names, at three sizes each."""
  sides = (peer.SIDE, *peer.OTHERS) if name in RESIZED else peer.OTHERS[-1:]
  for model, loaded, side, config in peer.at_each_size(name, tmp_path, sides):
    expected = peer.theirs_on(model, side, config)
    assert peer.error(peer.ours_on(loaded, side), expected) < peer.BOUND
