"""Damage to bytes: what disks, broken downloads and strangers do to files."""

import random


def flip(data: bytes, rng: random.Random) -> bytes:
  """One bit is another."""
  at = rng.randrange(len(data))
  return data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]


def truncate(data: bytes, rng: random.Random) -> bytes:
  """The end is missing."""
  return data[: rng.randrange(len(data))]


def zero(data: bytes, rng: random.Random) -> bytes:
  """A stretch is all zeros, as in a file whose blocks were never written."""
  begin, end = _stretch(data, rng)
  return data[:begin] + bytes(end - begin) + data[end:]


def randomise(data: bytes, rng: random.Random) -> bytes:
  """A stretch is noise."""
  begin, end = _stretch(data, rng)
  return data[:begin] + rng.randbytes(end - begin) + data[end:]


def saturate(data: bytes, rng: random.Random) -> bytes:
  """Some bytes are all ones: lengths and counts become as large as they can be."""
  begin = rng.randrange(len(data))
  end = begin + rng.choice((1, 2, 4, 8))
  return (data[:begin] + b"\xff" * (end - begin) + data[end:])[: len(data)]


def insert(data: bytes, rng: random.Random) -> bytes:
  """Bytes that do not belong there."""
  at = rng.randrange(len(data) + 1)
  return data[:at] + rng.randbytes(rng.choice((1, 7, 4096))) + data[at:]


def remove(data: bytes, rng: random.Random) -> bytes:
  """A stretch is missing."""
  begin, end = _stretch(data, rng)
  return data[:begin] + data[end:]


def repeat(data: bytes, rng: random.Random) -> bytes:
  """A stretch is there twice."""
  begin, end = _stretch(data, rng)
  return data[:end] + data[begin:end] + data[end:]


def append(data: bytes, rng: random.Random) -> bytes:
  """Something follows the end."""
  return data + rng.choice((b"\n", b"\0" * 512, rng.randbytes(64), data[:64]))


def replace(data: bytes, rng: random.Random) -> bytes:
  """Another file altogether."""
  return rng.choice((b"", b"\0", b"{}", b"[]", b"null", b"3", b"[" * 100_000, rng.randbytes(512)))


KINDS = (
  *(flip, truncate, zero, randomise, saturate, insert, remove, repeat, append),
  replace,
)


def _stretch(data: bytes, rng: random.Random) -> tuple[int, int]:
  begin = rng.randrange(len(data))
  return begin, min(len(data), begin + rng.choice((1, 4, 64, 1024)))
