"""Programs for GPUs: what the text of one tells, and programs that are compiled without a GPU."""

import dataclasses
import math

import pytest

from tests.extras.compiled.made import PROGRAM
from vit_jax.devices.chips import CHIPS
from vit_jax.extras.compiled import (
  bounds,
  communication,
  gpus,
  largest,
  matmuls,
  platforms,
  program_text,
)
from vit_jax.extras.compiled.gpu_targets import TARGETS
from vit_jax.extras.compiled.instructions import Program

H100 = CHIPS["NVIDIA H100 80GB HBM3"]

MATMULS = """%fused (p: bf16[6,5]) -> bf16[6,7] {
  %p = bf16[6,5]{1,0} parameter(0)
  %w = bf16[5,7]{1,0} parameter(1)
  ROOT %d = bf16[6,7]{1,0} dot(%p, %w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}

ENTRY %main (a: bf16[3,40,5]) -> bf16[3,5,7] {
  %a = bf16[3,40,5]{2,1,0} parameter(0)
  %b = bf16[3,40,7]{2,1,0} parameter(1)
  %c = bf16[6,5]{1,0} parameter(2)
  %e = bf16[5,7]{1,0} parameter(3)
  %q = bf16[4,200,12,64]{3,2,1,0} parameter(4)
  %n = s32[4]{0} parameter(5)
  %x = bf16[2,9,9,3]{3,2,1,0} parameter(6)
  %k = bf16[7,3,3,3]{3,2,1,0} parameter(7)
  %y = bf16[2,4,4,7]{3,2,1,0} parameter(8)
  %lt = (bf16[3,5,7]{2,1,0}, s8[33554432]{0}) custom-call(%a, %b), custom_call_target="__cublas$lt$matmul", backend_config={"gemm_backend_config":{"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"],"rhs_contracting_dimensions":["1"],"lhs_batch_dimensions":["0"],"rhs_batch_dimensions":["0"]}}}
  %t = bf16[6,7]{1,0} fusion(%c, %e), kind=kCustom, calls=%fused
  %f = (bf16[4,12,200,64]{3,1,2,0}, f32[4,12,200]{2,1,0}, u8[0]{0}) custom-call(%q, %q, %q, %n, %n), custom_call_target="__cudnn$fmhaSoftmax"
  %g = (bf16[4,12,200,64]{3,1,2,0}, bf16[4,12,200,64]{3,1,2,0}, bf16[4,12,200,64]{3,1,2,0}, u8[0]{0}) custom-call(%q, %q, %q, %f, %q, /*index=5*/%q, %n, %n), custom_call_target="__cudnn$fmhaSoftmaxBackward"
  %cf = (bf16[2,4,4,7]{3,2,1,0}, u8[0]{0}) custom-call(%x, %k), window={size=3x3 stride=2x2}, dim_labels=b01f_o01i->b01f, custom_call_target="__cudnn$convForward"
  %cw = (bf16[7,3,3,3]{3,2,1,0}, u8[0]{0}) custom-call(%x, %y), window={size=3x3 stride=2x2}, dim_labels=b01f_o01i->b01f, custom_call_target="__cudnn$convBackwardFilter"
  %ci = (bf16[2,9,9,3]{3,2,1,0}, u8[0]{0}) custom-call(%y, %k), window={size=3x3 stride=2x2}, dim_labels=b01f_o01i->b01f, custom_call_target="__cudnn$convBackwardInput"
  ROOT %r = bf16[3,5,7]{2,1,0} get-tuple-element(%lt), index=0
}
"""  # noqa: E501

SCORES = 4 * 12 * 200 * 200 * 64
CONVOLUTION = 2 * 4 * 4 * 7 * 3 * 3 * 3


@pytest.mark.parametrize(
  ("name", "flops"),
  [
    ("%lt", 2 * 3 * 40 * 5 * 7),
    ("%t", 2 * 6 * 5 * 7),
    ("%f", 2 * 2 * SCORES),
    ("%g", 2 * 5 * SCORES),  # the logits again, and two gradients of each of the two matmuls
    ("%cf", 2 * CONVOLUTION),
    ("%cw", 2 * CONVOLUTION),
    ("%ci", 2 * CONVOLUTION),
  ],
)
def test_flops_of_what_the_libraries_multiply(name, flops):
  program = Program(MATMULS)
  assert bounds.of(program, program.named[name]).flops == flops


def test_a_library_function_that_is_not_known_is_not_left_out():
  program = Program(MATMULS.replace("__cublas$lt$matmul", "__cublas$triangularSolve"))
  with pytest.raises(ValueError, match=r"custom-call __cublas.triangularSolve are not known"):
    matmuls.flops(program, program.named["%lt"])


def test_a_workspace_is_not_moved_and_an_operand_is_read_once():
  program = Program(MATMULS)
  moved = lambda name: bounds.moved_bytes(program, program.named[name])
  assert moved("%lt") == 2 * (3 * 40 * 5 + 3 * 40 * 7 + 3 * 5 * 7)
  heads, lengths, sums = 2 * 4 * 200 * 12 * 64, 4 * 4, 4 * 4 * 12 * 200
  assert moved("%f") == heads + lengths + heads + sums


KERNELS = """%inner (p: f32[8,6]) -> f32[8,2] {
  %p = f32[8,6]{1,0} parameter(0)
  %b = f32[48]{0} bitcast(%p)
  ROOT %s = f32[16]{0} slice(%b), slice={[0:16]}
}

%body (q: (s32[], f32[8,6])) -> (s32[], f32[8,6]) {
  %q = (s32[], f32[8,6]{1,0}) parameter(0)
  %i = s32[] get-tuple-element(%q), index=0
  %v = f32[8,6]{1,0} get-tuple-element(%q), index=1
  %j = s32[] fusion(%i), kind=kLoop, calls=%more
  %u = f32[8,6]{1,0} all-reduce-start(%v), channel_id=1
  %w = f32[8,6]{1,0} all-reduce-done(%u)
  %e = f32[8,6]{1,0} exponential(%w)
  ROOT %o = (s32[], f32[8,6]{1,0}) tuple(%j, %e)
}

%more (k: s32[]) -> s32[] {
  %k = s32[] parameter(0)
  ROOT %l = s32[] negate(%k)
}

ENTRY %main (a: f32[8,6]) -> f32[8,2] {
  %a = f32[8,6]{1,0} parameter(0)
  %z = s32[] constant(0)
  %t = (s32[], f32[8,6]{1,0}) tuple(%z, %a)
  %n = (s32[], f32[8,6]{1,0}) while(%t), condition=%more, body=%body, backend_config={"known_trip_count":{"n":"12"},"known_init_step":{"init":"0","step":"1"}}
  %y = f32[8,6]{1,0} get-tuple-element(%n), index=1
  %c = f32[8,6]{1,0} copy(%y)
  ROOT %f = f32[16]{0} fusion(%c), kind=kLoop, calls=%inner
}
"""  # noqa: E501


def test_kernels_count_as_often_as_their_loop_runs_and_communication_is_none():
  program = Program(KERNELS)
  assert {one.name: times for times, one in program.timed} == {"%j": 12, "%e": 12, "%c": 1, "%f": 1}
  assert program_text.collectives(KERNELS) == {"all-reduce": (12, 12 * 4 * 48)}


def test_of_what_is_sliced_only_the_slice_is_read():
  program = Program(KERNELS)
  assert bounds.moved_bytes(program, program.named["%f"]) == 4 * 16 * 2


def test_the_bound_is_the_slower_of_products_and_bytes():
  assert bounds.Bound(989e12, 0).seconds(H100) == pytest.approx(1)
  assert bounds.Bound(989e12, 2 * 3.35232e12).seconds(H100) == pytest.approx(2)


def test_what_names_no_gpus_is_refused():
  for topology in ("h100:0", "h100:8x", "h100:2x8x1", "h300:8", "H100:8", "h100"):
    assert not gpus.names(topology)


def test_every_described_gpu_has_its_memory_and_rates():
  for target in TARGETS.values():
    known = CHIPS.get(target.kind)
    # Float32 lanes multiply and add in each cycle; matrix units are at least four times as fast.
    lanes = 2 * target.cores * target.fpus * target.clock_ghz * 1e9
    assert 3.5 < known.peak_flops / lanes < 64
    assert known.link_bandwidth < known.hbm_bandwidth


@pytest.mark.parametrize(("variable", "share"), [(None, 0.75), ("0.9", 0.9)])
def test_jax_takes_a_share_of_the_memory(monkeypatch, variable, share):
  for name in gpus.FRACTIONS:
    monkeypatch.delenv(name, raising=False)
  if variable:
    monkeypatch.setenv(gpus.FRACTIONS[0], variable)
  usable = platforms.of("gpu").usable("NVIDIA H100 80GB HBM3")
  assert math.isclose(usable, share * H100.hbm_bytes)


SENT = """ENTRY %main (a: f32[16]) -> f32[16] {
  %a = f32[16]{0} parameter(0)
  %r = f32[16]{0} all-reduce-start(%a), channel_id=1, replica_groups=GROUPS
  %s = f32[16]{0} all-reduce-done(%r)
  %t = (f32[2]{0}, f32[16]{0}) all-gather-start(%a), channel_id=2, replica_groups=GROUPS, dimensions={0}
  %u = f32[16]{0} all-gather-done(%t)
  %v = f32[4]{0} reduce-scatter(%a), channel_id=3, replica_groups=GROUPS, dimensions={0}
  ROOT %w = f32[16]{0} collective-permute(%u), channel_id=4, source_target_pairs={{0,1},{1,2}}
}
"""  # noqa: E501


def ring(groups, gpus):
  """Bytes that the first device of the first group sends, counted along rings: link and network.

  In each machine a reduce-scatter and an all-gather over its own members; between the machines, the
  same of a member's share. An all-gather or a reduce-scatter alone is half of that.
  """
  group = groups[0]
  mine = [device for device in group if device // gpus == group[0] // gpus]
  others = len(group) // len(mine)
  around = lambda size, members: sum(size / members for _ in range(members - 1))
  once = around(64, len(mine)), around(64 / len(mine), others)
  return [4 * each for each in once]  # 2 by the all-reduce, 1 by each of the others


@pytest.mark.parametrize("gpus", [2, 4])
@pytest.mark.parametrize(
  ("groups", "listed"),
  [
    ("{{0,1,2,3}}", [[0, 1, 2, 3]]),
    ("[1,4]<=[4]", [[0, 1, 2, 3]]),
    ("{}", [[0, 1, 2, 3]]),
    ("mesh['axis_0'=1,'axis_1'=4] {'axis_1'}", [[0, 1, 2, 3]]),
    ("[2,4]<=[4,2]T(1,0)", [[0, 2, 4, 6], [1, 3, 5, 7]]),
    ("mesh['a'=2,'b'=1,'c'=4], device_ids=([4,2]T(1,0)) {'c'}", [[0, 2, 4, 6], [1, 3, 5, 7]]),
  ],
)
def test_what_is_sent_is_what_rings_send(groups, listed, gpus):
  text = SENT.replace("GROUPS", groups)
  link, network = ring(listed, gpus)
  permuted = (0, 64) if gpus == 2 else (64, 0)  # from 1 to 2
  found = communication.traffic(text, 4 // gpus, gpus)
  assert found == pytest.approx((link + permuted[0], network + permuted[1]))


def test_groups_that_are_written_in_another_way_are_not_guessed():
  for groups in ("mesh['a'=8] {'a':(1)2}", "all"):
    with pytest.raises(ValueError, match=r"(?i)groups"):
      communication.traffic(SENT.replace("GROUPS", groups), 1, 8)


@pytest.mark.parametrize("kind", ["collective-broadcast", "ragged-all-to-all"])
def test_a_collective_of_which_no_ring_is_known_is_not_left_out(kind):
  text = SENT.replace("GROUPS", "[1,4]<=[4]").replace("reduce-scatter(", f"{kind}(")
  assert program_text.collectives(text)[kind] == (1, 16)
  with pytest.raises(ValueError, match=f"What a {kind} sends is not known"):
    communication.traffic(text, 1, 4)


def test_sending_takes_as_long_as_at_the_published_rates():
  assert communication.Traffic(450e9, 50e9).seconds(H100) == pytest.approx((1, 1))
  assert communication.Traffic(450e9, 0).seconds(CHIPS["NVIDIA RTX A6000"])[1] == 0
  assert communication.Traffic(450e9, 1).seconds(CHIPS["NVIDIA RTX A6000"])[1] is None


@pytest.mark.parametrize("first", [1, 8, 100, 512, 900, 5000])
@pytest.mark.parametrize(
  ("curve", "best"),
  [
    (lambda n: 500 + 10 * n, 944),
    (lambda n: 500 + 10 * n + (n % 16) * 3, 944),  # uneven
    (lambda n: 5000 + 5 * n, 1000),
    (lambda n: 500 + 8 * n + n * n / 1000, 1048),
    (lambda n: 500 + 10 * n + 2000 * (n > 500), 744),
    (lambda n: 1000 + 2500 * n, 2),
    (lambda n: 20_000 + n, 0),
  ],
)
def test_the_largest_batch_fits_and_the_next_one_does_not(curve, best, first):
  tried = []

  def compiled(images):
    tried.append(images)
    peak = curve(images)
    return dataclasses.replace(PROGRAM, peak_bytes=peak, usable_bytes=10_000, fits=peak <= 10_000)

  images, program = largest.largest(compiled, first)
  assert images == best
  assert (program is None) == (best == 0)
  assert len(tried) == len(set(tried)) <= 12
