"""Figures read from the text of compiled programs, with texts written by XLA."""

import jax
import jax.numpy as jnp
import pytest

from vit_jax.extras.compiled import program_text

COLLECTIVES = """ENTRY %main (a: f32[8]) -> f32[8] {
  %all-reduce.1 = f32[1024]{0:T(1024)} all-reduce(f32[1024]{0} %a), channel_id=1, replica_groups={}
  %b = (bf16[1,4096]{1,0:T(4,128)(2,1)}, f32[2,3]{1,0}) all-reduce(%x, %y), channel_id=2
  %c = (u8[4,8]{1,0}, u8[16,8]{1,0}) all-gather-start(u8[4,8]{1,0} %z), channel_id=3
  %d = u8[16,8]{1,0} all-gather-done((u8[4,8]{1,0}, u8[16,8]{1,0}) %c)
  %e = pred[64]{0} all-gather(pred[8]{0} %g), channel_id=4
  %f = pred[64]{0} all-gather(pred[8]{0} %h), channel_id=4
  %i = f32[] add(f32[] %j, f32[] %k)
}
"""

# Two blocks, three parts: loop within loop. What is in a fusion has no count of its own.
LOOPS = """HloModule jit_step, is_scheduled=true

%fused (p: f32[8]) -> f32[8] {
  %p = f32[8]{0:T(256)} parameter(0)
  ROOT %exp = f32[8]{0:T(256)} exponential(%p)
}

%block (q: (s32[], f32[8])) -> (s32[], f32[8]) {
  %j = s32[]{:T(128)} get-tuple-element(%q), index=0
  %l = s32[] add(%j, %carried)
  %f = f32[8]{0} fusion(%q), kind=kLoop, calls=%fused, config={"w":{"estimated_cycles":"5"}}
  ROOT %r = (s32[], f32[8]) tuple(%l, %f)
}

%more_blocks (q: (s32[], f32[8])) -> pred[] {
  %n = s32[]{:T(128)} constant(2)
  %i = s32[]{:T(128)} get-tuple-element(%q), index=0
  ROOT %lt = pred[]{:T(512)} compare(%i, %n), direction=LT
}

%part (q: (s32[], f32[8])) -> (s32[], f32[8]) {
  %i = s32[] get-tuple-element(%q), index=1
  %m = s32[] constant(1)
  %k = s32[] add(%i, %m)
  %w = (s32[], f32[8]) while(%q), condition=%more_blocks, body=%block, metadata={op_name="while"}
  %g = f32[8]{0} fusion(%w), kind=kLoop, calls=%fused, config={"w":{"estimated_cycles":"7"}}
  ROOT %r = (f32[8], /*index=1*/s32[]) tuple(%g, /*index=1*/%k)
}

%more_parts (q: (s32[], f32[8])) -> pred[] {
  %n = s32[] constant(3)
  %i = s32[] get-tuple-element(%q), index=1
  ROOT %lt = pred[] compare(%i, %n), direction=LT
}

ENTRY %main (a: f32[8]) -> f32[8] {
  %a = f32[8]{0} parameter(0)
  %w = (s32[], f32[8]) while(%a), condition=%more_parts, body=%part, metadata={op_name="while"}
  ROOT %h = f32[8]{0} fusion(%w), calls=%fused, config={"w":{"estimated_cycles":"100"}}
}
"""


def test_collectives_are_counted_and_measured():
  assert program_text.collectives(COLLECTIVES) == {
    "all-reduce": (2, 4 * 1024 + 2 * 4096 + 4 * 6),
    "all-gather": (2, 128 + 64),
  }


def test_collectives_count_as_often_as_their_loops_run():
  outside = "  %s = f32[6]{0} all-reduce(%h), channel_id=1\n"
  in_block = "  %t = f32[1]{0} all-reduce(%q), channel_id=2\n"
  in_called = "  %u = f32[2]{0} all-gather(%p), channel_id=3\n"
  text = LOOPS.replace("  ROOT %h", outside + "  ROOT %h").replace("  %f = ", in_block + "  %f = ")
  assert program_text.collectives(text) == {"all-reduce": (1 + 3 * 2, 24 + 3 * 2 * 4)}
  text = LOOPS.replace("  ROOT %exp", in_called + "  ROOT %exp")
  assert program_text.collectives(text)["all-gather"] == (1 + 3 + 3 * 2, (1 + 3 + 3 * 2) * 8)


def test_of_a_collective_in_several_fusions_the_rarest_counts():
  part = "  %s = f32[6]{0} all-gather(%h), channel_id=1\n"
  text = LOOPS.replace("  ROOT %h", part + "  ROOT %h").replace("  %f = ", part + "  %f = ")
  assert program_text.collectives(text) == {"all-gather": (1, 24)}


SLICE = """  %all-reduce.5 = bf16[8,4]{1,0:T(8,128)(2,1)} all-reduce(%input), channel_id=29
  ROOT %s = bf16[2,4]{1,0:T(8,128)(2,1)} dynamic-slice(%all-reduce.5, %o, %p)"""
NAMED_AGAIN = """  %all-reduce.5 = bf16[8,4]{1,0} all-reduce(%input), channel_id=29
  %s = bf16[2,4]{1,0} dynamic-slice(%all-reduce.5, %o, %p)
  ROOT %b = bf16[2,2,2]{2,1,0} bitcast(%s)"""
SLICES = """  %r = (bf16[8,4]{1,0:T(8,128)}, f32[8,3]{1,0}) all-reduce(%input, %more), channel_id=29
  %a = bf16[8,4]{1,0:T(8,128)(2,1)} get-tuple-element(%r), index=0
  %n = u32[1]{0:T(128)} dynamic-slice(%shards, %partition), dynamic_slice_sizes={1}
  %s = bf16[2,4]{1,0:T(8,128)(2,1)S(1)} dynamic-slice(%a, %o, %p), dynamic_slice_sizes={2,4}
  %b = f32[8,3]{1,0} get-tuple-element(%r), index=1
  %t = f32[2,3]{1,0} dynamic-slice(%b, %o, %p), dynamic_slice_sizes={2,3}
  ROOT %u = (bf16[2,4]{1,0:T(8,128)(2,1)S(1)}, /*index=1*/f32[2,3]{1,0}) tuple(%s, %t)"""


@pytest.mark.parametrize(
  ("block", "kept"), [(SLICE, 16), (NAMED_AGAIN, 16), (SLICES, 16 + 24)], ids=["1", "named", "2"]
)
def test_an_all_reduce_of_which_slices_are_kept_is_a_reduce_scatter(block, kept):
  """Several arrays are reduced together, as with 16 chips in a group on v6e:16x16."""
  fused = f"%all-reduce-scatter.1 (input: bf16[8,4]) -> bf16[2,4] {{\n{block}\n}}\n\nENTRY"
  text = LOOPS.replace(
    'calls=%fused, config={"w":{"estimated_cycles":"100',
    'calls=%all-reduce-scatter.1, config={"w":{"estimated_cycles":"100',
  )
  assert program_text.collectives(text.replace("ENTRY", fused)) == {"reduce-scatter": (1, kept)}


@pytest.mark.parametrize(("block", "count", "kept"), [(SLICES, 2, 40), (SLICE, 1, 16)])
def test_reduce_scatters_of_several_arrays_are_not_one_because_of_their_channel(block, count, kept):
  fused = "".join(f"%all-reduce-scatter.{i} (input: bf16[8,4]) {{\n{block}\n}}\n\n" for i in "12")
  run = "  %x = bf16[2,4]{1,0} fusion(%w), calls=%all-reduce-scatter."
  text = LOOPS.replace("  ROOT %h", f"{run}1\n{run}2\n  ROOT %h").replace("ENTRY", fused + "ENTRY")
  assert program_text.collectives(text) == {"reduce-scatter": (count, count * kept)}


def test_numbers_of_an_unknown_size_are_not_left_out():
  assert program_text.shape_bytes("(s4[6]{0}, f64[2]{0}, u32[])") == 3 + 16 + 4
  with pytest.raises(ValueError, match="'f8e4m3fn'"):
    program_text.shape_bytes("f8e4m3fn[16,8]{1,0}")


def test_cycles_count_as_often_as_their_loops_run():
  assert program_text.cycles(LOOPS) == 100 + 3 * (7 + 2 * 5)


def test_a_loop_that_counts_by_two_runs_half_as_often():
  by_two = LOOPS.replace("%m = s32[] constant(1)", "%m = s32[]{:T(128)} constant(2)")
  assert program_text.cycles(by_two) == 100 + 2 * (7 + 2 * 5)  # 0 and 2, below 3
  unsigned = by_two.replace("s32[]", "u32[]")
  assert program_text.cycles(unsigned) == 100 + 2 * (7 + 2 * 5)


def test_a_program_without_counts_has_no_cycles():
  text = jax.jit(jnp.tanh).lower(jnp.ones(4)).compile().as_text()
  assert program_text.cycles(text) is None


def test_a_loop_that_draws_until_it_accepts_counts_once():
  """As that of MixUp's share does."""
  draws = LOOPS.replace("  ROOT %lt = pred[]{:T(512)}", "  %u = f32[] log(%v)\n  ROOT %lt = pred[]")
  assert program_text.cycles(draws) == 100 + 3 * (7 + 5)
  reduced = draws.replace("  %f = ", "  %t = f32[1]{0} all-reduce(%q), channel_id=2\n  %f = ")
  assert program_text.collectives(reduced) == {"all-reduce": (3, 3 * 4)}


@pytest.mark.parametrize(
  ("known", "unknown"), [("constant(2)", "parameter(1)"), ("direction=LT", "direction=GT")]
)
def test_a_loop_of_unknown_length_is_not_guessed(known, unknown):
  with pytest.raises(ValueError, match="loop"):
    program_text.cycles(LOOPS.replace(known, unknown))
