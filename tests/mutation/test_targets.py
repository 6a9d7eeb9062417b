"""What the list of mutated files names exists."""

import re

import pytest

from tests.mutation.targets import TESTS
from tests.programs import ROOT


@pytest.mark.parametrize("file", TESTS)
def test_files_and_tests_exist(file):
  assert (ROOT / file).is_file()
  for test in TESTS[file]:
    path, _, name = test.partition("::")
    text = (ROOT / path).read_text()
    assert not name or re.search(rf"^def {name}\(", text, re.MULTILINE), test
