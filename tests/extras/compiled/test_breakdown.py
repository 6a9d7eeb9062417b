"""Where the time of a step goes, for programs that the TPU's compiler wrote (tests/fixtures)."""

import collections
import functools
import gzip
import pathlib

import pytest

from vit_jax.config import Model
from vit_jax.devices.chips import CHIPS
from vit_jax.extras.compiled import bounds, matmuls, program_text
from vit_jax.extras.compiled.breakdown import breakdown
from vit_jax.extras.compiled.categories import CATEGORIES, Categories
from vit_jax.extras.compiled.instructions import Program
from vit_jax.models import configured

PROGRAMS = pathlib.Path(__file__).parents[2] / "fixtures" / "programs"
NAMES = ("vit", "accumulation", "hybrid", "resnet")
V3 = CHIPS["TPU v3"]


@functools.cache
def text(name):
  return gzip.decompress((PROGRAMS / f"{name}.txt.gz").read_bytes()).decode()


@functools.cache
def parts(name):
  return {part.category: part for part in breakdown(text(name), V3)}


@functools.cache
def flops_of(name):
  """FLOPs of the matmuls in each category of a program."""
  return collections.Counter({part.category: part.flops for part in breakdown(text(name), V3)})


@pytest.mark.parametrize(
  ("name", "without"),
  [
    ("vit", {"accumulation"}),
    ("accumulation", set()),
    ("hybrid", {"accumulation", "dropout"}),
    ("resnet", {"accumulation", "dropout", "attention, forward", "attention, backward"}),
  ],
)
def test_the_categories_of_a_step_add_up_to_it_and_little_is_left_over(name, without):
  found, whole = parts(name), program_text.cycles(text(name))
  assert set(CATEGORIES) - {"other", "moving average"} - set(found) == without
  assert sum(part.cycles for part in found.values()) == whole
  for part in found.values():
    assert 0 <= part.bound_seconds <= part.cycles / V3.clock_hz
  assert "other" not in found or found["other"].cycles < 0.005 * whole


@pytest.mark.parametrize("name", NAMES)
def test_each_matmul_has_two_gradients_but_the_first_has_one(name):
  """The images have no gradient; padding does not count."""
  flops = flops_of(name)
  assert flops["weight gradients"] == flops["forward matmuls"]
  assert 0.5 < flops["input gradients"] / flops["forward matmuls"] < 1


MODELS = dict(
  vit=(Model(name="ViT-Ti/4", depth=1, width=64, mlp_dim=256, heads=4, num_classes=10), 16),
  resnet=(Model(name="R50x1", stages=(1, 1), num_classes=10), 64),
)


@pytest.mark.parametrize("name", MODELS)
def test_the_matmuls_are_those_of_the_model(name):
  """8 images a device. Query and key are multiplied twice; the model's number has padding."""
  settings, side = MODELS[name]
  flops = flops_of(name)
  heads = flops["head and loss"] / 3  # forward and two gradients
  attention = flops["attention, forward"] * 2 / 3
  found = flops["forward matmuls"] + attention + heads
  whole = 2 * 8 * configured(settings).macs(side, side)
  assert whole * (0.95 if name == "resnet" else 1) <= found <= whole


MATMULS = """ENTRY %main {
  %q = bf16[8,197,16,64]{1,3,2,0} parameter(0)
  %k = bf16[8,197,16,64]{1,3,2,0} parameter(1)
  %x = f32[2,5,5,3]{3,2,1,0} parameter(2)
  %w = f32[3,3,3,7]{3,2,1,0} parameter(3)
  %s = f32[8,16,197,197]{2,3,1,0} convolution(%q, %k), window={size=8x16 stride=7x15 lhs_dilate=8x16}, dim_labels=0b1f_0o1i->01bf
  %c = f32[2,5,5,7]{3,2,1,0} convolution(%x, %w), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f
  %d = f32[8,10]{1,0} convolution(%e, %f), dim_labels=bf_io->bf
  %e = f32[8,4]{1,0} parameter(4)
  %f = f32[4,10]{1,0} parameter(5)
}
"""  # noqa: E501


@pytest.mark.parametrize(
  ("name", "flops"),
  [
    ("%s", 2 * 8 * 16 * 197 * 197 * 64),  # batch and heads are written as a window
    ("%c", 2 * 2 * 7 * 3 * 13 * 13),  # along an axis 13 of 5 x 3 pairs do not meet the padding
    ("%d", 2 * 8 * 4 * 10),
  ],
)
def test_flops_of_a_matmul(name, flops):
  program = Program(MATMULS)
  assert matmuls.flops(program, program.named[name]) == flops


SLICES = """%inner {
  %stack = f32[24,8]{1,0} parameter(0)
  %row = f32[8]{0} parameter(1)
  %i = s32[]{:T(256)S(6)} parameter(2)
  %one = f32[1,8]{1,0} dynamic-slice(%stack, %i), dynamic_slice_sizes={1,8}
  %new = f32[1,8]{1,0} add(%one, %row)
  ROOT %set = f32[24,8]{1,0} dynamic-update-slice(%stack, %new, %i)
}

ENTRY %main {
  %a = f32[24,8]{1,0} parameter(0)
  %b = f32[8]{0:T(256)S(1)} parameter(1)
  %c = s32[]{:T(256)S(6)} parameter(2)
  %f = f32[24,8]{1,0} fusion(%a, %b, %c), kind=kLoop, calls=%inner
  ROOT %t = f32[8,24]{1,0} transpose(%f), dimensions={1,0}
}
"""


def test_of_a_stack_only_the_slices_move_and_what_is_on_the_chip_does_not():
  program = Program(SLICES)
  moved = {name: bounds.moved_bytes(program, program.named[name]) for name in ("%f", "%t")}
  assert moved == {"%f": 4 * 8 + 4 * 8, "%t": 2 * 4 * 24 * 8}


def test_the_gradient_of_a_kernel_is_told_from_that_of_its_input_in_a_loop():
  """What a loop carries depends on the batch only where it comes from it, if rounds later."""
  loop = """%body {
  %p = (f32[8,8]{1,0}, f32[8,8]{1,0}, f32[8,8]{1,0}) parameter(0)
  %x = f32[8,8]{1,0} get-tuple-element(%p), index=0
  %w = f32[8,8]{1,0} get-tuple-element(%p), index=1
  %y = f32[8,8]{1,0} get-tuple-element(%p), index=2
  %dx = f32[8,8]{1,0} convolution(%x, %w), dim_labels=bf_oi->bf, metadata={op_name="transpose(jvp(A))/k/dot"}
  %dw = f32[8,8]{1,0} convolution(%x, %y), dim_labels=fb_io->bf, metadata={op_name="transpose(jvp(A))/k/dot"}
  ROOT %r = (f32[8,8]{1,0}, f32[8,8]{1,0}, f32[8,8]{1,0}) tuple(%dx, %w, %x)
}

%more {
  %q = (f32[8,8]{1,0}, f32[8,8]{1,0}, f32[8,8]{1,0}) parameter(0)
  %n = f32[] log(%q)
  ROOT %lt = pred[] compare(%n, %n), direction=LT
}

ENTRY %main {
  %a = f32[8,8]{1,0} parameter(0), metadata={op_name="batch['image']"}
  %b = f32[8,8]{1,0} parameter(1), metadata={op_name="state.params['k']"}
  %c = f32[8,8]{1,0} constant({...})
  %t = (f32[8,8]{1,0}, f32[8,8]{1,0}, f32[8,8]{1,0}) tuple(%a, %b, %c)
  ROOT %l = (f32[8,8]{1,0}, f32[8,8]{1,0}, f32[8,8]{1,0}) while(%t), condition=%more, body=%body
}
"""  # noqa: E501
  program = Program(loop)
  found = {name: Categories(program).of(program.named[name]) for name in ("%dx", "%dw")}
  assert found == {"%dx": "input gradients", "%dw": "weight gradients"}
