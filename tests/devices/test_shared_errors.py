"""Errors of computations that hosts share."""

import jax
import pytest

from vit_jax.config import ConfigError
from vit_jax.devices import hosts


@pytest.mark.parametrize(
  ("error", "is_one"),
  [
    (jax.errors.JaxRuntimeError("UNKNOWN: Connection closed by peer"), True),
    (ValueError("UNKNOWN: Gloo AllGather failed: Connection reset by peer"), True),
    (ValueError("NOT_FOUND: Error opening a file"), False),
    (ValueError("INTERNAL: Error writing [os_error_code='28']"), False),
    (ValueError("shapes differ"), False),
    (ConfigError("UNKNOWN: a setting"), False),
    (OSError(28, "No space left on device"), False),
  ],
)
def test_errors_of_computations_that_hosts_share_are_told_from_others(error, is_one):
  assert hosts.is_of_others(error) == is_one
