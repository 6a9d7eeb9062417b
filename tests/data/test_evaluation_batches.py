"""Evaluation batches hold every example once, for any number of hosts."""

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from tests.data.numbered import (
  CLASSES,
  SIZE,
  Listed,
  evaluate,
  joined,
  jpegs,
  numbered,
)
from vit_jax.data import images
from vit_jax.data.sources import Example


@hypothesis.given(
  count=st.integers(1, 150),
  per_host=st.integers(1, 80),
  hosts=st.sampled_from((1, 2, 4, 8)),
  threads=st.sampled_from((0, 2)),
)
@hypothesis.settings(max_examples=60)
def test_every_example_counts_once_in_order(count, per_host, hosts, threads):
  source = numbered(count)
  shared = [
    evaluate(source, batch_size=per_host * hosts, host=host, hosts=hosts, threads=threads)
    for host in range(hosts)
  ]
  assert len({len(batches) for batches in shared}) == 1
  batches = joined(shared)
  assert all(batch["image"].shape == (per_host * hosts, SIZE, SIZE, 3) for batch in batches)
  mask = np.concatenate([batch["mask"] for batch in batches])
  pixels = np.concatenate([batch["image"][:, 0, 0, 0] for batch in batches])
  labels = np.concatenate([batch["labels"] for batch in batches])
  np.testing.assert_array_equal(mask, np.arange(len(mask)) < count)
  np.testing.assert_array_equal(pixels[:count], np.arange(count) % 251)
  np.testing.assert_array_equal(labels[:count], np.arange(count) % CLASSES)
  assert not pixels[count:].any()


def test_multi_label_evaluation_is_padded_with_no_labels():
  source = Listed([Example(np.ones((2, 2, 3), np.uint8), (1, 4), "")] * 3, multi_label=True)
  (batch,) = evaluate(source, batch_size=5)
  np.testing.assert_array_equal(batch["labels"].sum(axis=1), [2, 2, 2, 0, 0])


@pytest.mark.parametrize("threads", [0, 2])
def test_bad_image_stops_evaluation_and_is_named(threads):
  source = jpegs(20)
  source._examples[13] = source[13]._replace(image=source[13].image[:-40])
  with pytest.raises(images.BadImage, match=r"file 13\.jpg: .*truncated"):
    evaluate(source, batch_size=4, threads=threads)
