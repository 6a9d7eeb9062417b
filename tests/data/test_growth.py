"""Data as large as JFT-300M: what it costs to open it and to draw the first shuffled batch.

The data is simulated. Its metadata lists 300 million examples, in as many shards as TFDS itself
would make of 300 million JPEGs of 110 KB. Each shard is a hard link to one real ArrayRecord file of
tiny JPEGs, so that a shard is opened, and its whole index read and held, as if it were a file of
its own. What is not seen is the time of a disk, since that one file soon is in memory.
"""

import json
import os
import pathlib
import subprocess
import sys

import pytest
import tensorflow_datasets as tfds
from tensorflow_datasets.core.utils import shard_utils

from tests.data import tfds_fixture
from vit_jax.data import records

EXAMPLES = 300_000_000
JPEG_BYTES = 110_000
SHARDS = shard_utils.ShardConfig.calculate_number_shards(EXAMPLES * JPEG_BYTES, EXAMPLES)
MAX_SECONDS, MAX_BYTES = 20, 1e9  # reading the whole index would take minutes
BATCH = 1024

# Seconds of the processor, not of the clock: nothing here waits, and other programs do not count.
PROGRAM = """
import functools, json, pathlib, re, resource, sys
from vit_jax.data import images, pipeline, sources
from vit_jax.data.layout import Crop, Layout

hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))  # fewer than the shards of a batch
source = sources.open_source("tfds:huge", split="train")
cut = functools.partial(
  images.train_image, size=8, area=(0.05, 1), aspect=(0.75, 1.33), flip=True, max_pixels=10**6)
batches = pipeline.train_batches(
  source, layout=Layout.of(source, {"image": Crop(cut, 8)}, {}), seed=0, batch_size=%d, host=0,
  hosts=1, start=0, threads=16)
mask = next(batches)["mask"]
usage = resource.getrusage(resource.RUSAGE_SELF)
batches.close()
# Not ru_maxrss, which a process inherits from the one that starts it.
most = re.search(r"VmHWM:\\s+(\\d+) kB", pathlib.Path("/proc/self/status").read_text())[1]
print(json.dumps({
  "examples": len(source), "images": int(mask.sum()), "seconds": usage.ru_utime + usage.ru_stime,
  "bytes": 1024 * int(most), "tensorflow": "tensorflow" in sys.modules}))
"""


def write_huge(root: pathlib.Path, *, shards: int, examples_each: int) -> None:
  """A dataset "huge" with one split "train", all of whose shards are one file on the disk."""
  directory = root / "huge" / "1.0.0"
  directory.mkdir(parents=True)
  image, label = tfds.features.Image(), tfds.features.ClassLabel(num_classes=10)
  features = tfds.features.FeaturesDict({"image": image, "label": label})
  record = features.serialize_example({"image": tfds_fixture.tiny_jpeg(), "label": 3})
  path = lambda i: directory / f"huge-train.array_record-{i:05}-of-{shards:05}"
  records.write(path(0), [record] * examples_each)
  for number in range(1, shards):
    os.link(path(0), path(number))
  lengths = [examples_each] * shards
  size = sum(lengths) * len(record)
  split = tfds.core.SplitInfo(name="train", shard_lengths=lengths, num_bytes=size)
  options = dict(data_dir=str(directory), version="1.0.0", check_data=False)
  tfds.folder_dataset.write_metadata(features=features, split_infos=[split], **options)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is needed")
def test_first_batch_of_300_million_examples(tmp_path):
  write_huge(tmp_path, shards=SHARDS, examples_each=-(-EXAMPLES // SHARDS))
  words = [sys.executable, "-c", PROGRAM % BATCH]
  done = subprocess.run(
    words, env=os.environ | {"TFDS_DATA_DIR": str(tmp_path)}, capture_output=True, text=True
  )
  assert done.returncode == 0, done.stderr
  found = json.loads(done.stdout)
  assert found["examples"] >= EXAMPLES
  assert found["images"] == BATCH
  assert found["seconds"] < MAX_SECONDS
  assert found["bytes"] < MAX_BYTES
  assert not found["tensorflow"]  # which takes seconds to import
