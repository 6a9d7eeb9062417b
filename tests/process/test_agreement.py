"""What processes exchange, with other processes that are made up."""

import jax
import numpy as np
import pytest
from jax.experimental import multihost_utils

from vit_jax.process import agreement


@pytest.mark.parametrize(
  ("exchange", "result"),
  [
    (lambda: agreement.allgather_str("größe"), ["größe", "größe"]),
    (lambda: agreement.broadcast_str(lambda: "größe"), "größe"),
    (lambda: agreement.broadcast_bool(False), False),
  ],
)
def test_text_is_exchanged_also_where_only_explicit_transfers_are_allowed(
  monkeypatch, exchange, result
):
  """Such as why a run ends, found while a step is dispatched."""
  by_devices = lambda row: np.asarray(jax.jit(lambda row: row)(row))
  monkeypatch.setattr(jax, "process_count", lambda: 2)
  monkeypatch.setattr(multihost_utils, "broadcast_one_to_all", by_devices)
  monkeypatch.setattr(multihost_utils, "process_allgather", lambda row: [by_devices(row)] * 2)
  with jax.transfer_guard("disallow"):
    assert exchange() == result
