"""What a seam joins does not depend on the number of devices."""

import pytest


@pytest.fixture(autouse=True)
def few_devices(one_device):
  """All tests have one device."""
