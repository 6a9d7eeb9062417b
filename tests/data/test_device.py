"""Making global arrays from host batches."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vit_jax.config import Mesh
from vit_jax.data import batches
from vit_jax.devices import mesh as meshes


def numbered(count, log):
  for i in range(count):
    log.append(i)
    yield dict(image=np.full((16, 2), i, np.uint8), mask=np.ones(16, np.float32))


@pytest.mark.parametrize("ahead", [1, 2, 3])
def test_batches_are_put_ahead_in_order_and_split(ahead):
  mesh = meshes.make(Mesh(fsdp=2), batch_size=16, accumulation=1)
  sharding, log, seen = meshes.batch_sharding(mesh), [], []
  with jax.transfer_guard("disallow"):
    for batch in batches.prefetch_to_device(numbered(6, log), sharding, ahead=ahead):
      seen.append(int(jax.device_get(batch["image"])[0, 0]))
      assert batch["image"].sharding == sharding
      assert len(log) == min(6, seen[-1] + ahead)
  assert seen == list(range(6))


def test_normalisation_is_exact_in_float32_and_rounded_once_in_bfloat16():
  pixels = np.arange(256, dtype=np.uint8)
  exact = (np.arange(256) - 127.5) / 127.5
  np.testing.assert_allclose(batches.normalize(pixels, jnp.float32), exact, atol=1e-7)
  assert batches.normalize(pixels, jnp.float32).min() == -1
  assert batches.normalize(pixels, jnp.float32).max() == 1
  rounded = np.float32(exact).astype(jnp.bfloat16)
  np.testing.assert_array_equal(batches.normalize(pixels, jnp.bfloat16), rounded)
