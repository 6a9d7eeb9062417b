"""The segments of a JPEG: what its headers say, without decoding pixels.

Source: ITU-T T.81, Annex B; Exif 2.32, Section 4.
"""

import re
from collections.abc import Iterator

MAX_SCANS = 500  # the usual progressive file has 10
START, END = b"\xff\xd8\xff", b"\xff\xd9"

_APP1 = 0xE1
_EXIF, _XMP = b"Exif\0\0", b"http://ns.adobe.com/xap/1.0/\0"
_SEQUENTIAL = (0xC0, 0xC1)  # frame headers of JPEGs that store rows from top to bottom
_OTHER_FRAMES = (*range(0xC2, 0xC4), *range(0xC5, 0xC8), *range(0xC9, 0xCC), *range(0xCD, 0xD0))
_SCAN, _RESTARTS = 0xDA, 0xDD
# As in the decoder, other bytes may lie between segments. 00 and D0 to D7 occur inside of scans.
_MARKER = re.compile(rb"\xff[^\x00\x01\xd0-\xd7\xff]")
_COEFFICIENTS = 64  # of a block


def segments(data: bytes) -> Iterator[tuple[int, int, int]]:
  """Each segment before the end of the image: its marker, and where its content lies."""
  at = 2
  while (match := _MARKER.search(data, at)) and (marker := data[match.end() - 1]) != END[1]:
    at = match.end()
    end = at + int.from_bytes(data[at : at + 2], "big")
    yield marker, at + 2, end
    at = end


def end(data: bytes) -> int | None:
  """Where the end marker of the image is; None: there is none."""
  match = _MARKER.search(data, max((end for *_, end in segments(data)), default=2))
  return match.start() if match else None


def exif(data: bytes) -> bytes:
  """The Exif before the first scan, without its name; b"" if there is none."""
  return b"".join(_app1(data, _EXIF))


def xmp(data: bytes) -> bytes:
  """The last XMP before the first scan; b"" if there is none."""
  return next(reversed([b"", *_app1(data, _XMP)]))


def _app1(data: bytes, name: bytes) -> Iterator[bytes]:
  """The contents of the segments of a name before the first scan."""
  for marker, at, end in segments(data):
    if marker == _SCAN:
      return
    if marker == _APP1 and data[at : min(at + len(name), end)] == name:
      yield data[at + len(name) : end]


def scans(data: bytes) -> int:
  """The number of scans, counted up to `MAX_SCANS` + 1."""
  count, components = 0, b""
  for marker, at, _ in segments(data):
    if marker in _SEQUENTIAL:
      components = data[at + 5 : at + 6]
    if marker == _SCAN:
      count += 1
      # A sequential frame whose first scan has all components has no other scan.
      if data[at : at + 1] == components or count > MAX_SCANS:
        break
  return count


def height_field(data: bytes) -> int | None:
  """Offset of the height in the frame header, if changing it can cut off rows; else None.

  None for progressive and other frames, which spread rows over the file, and for files with restart
  markers, which would hide where the decoder stopped.
  """
  field = None
  for marker, at, _ in segments(data):
    if marker == _SCAN:
      return field
    if marker == _RESTARTS or marker in _OTHER_FRAMES:
      return None
    if marker in _SEQUENTIAL:
      field = at + 1
  return None


def has_every_scan(data: bytes) -> bool:
  """Whether the headers of scans give every coefficient of every component, to its last bit."""
  components, done = -1, set()
  for marker, at, end in segments(data):
    content = data[at:end]
    if marker in (*_SEQUENTIAL, *_OTHER_FRAMES) and len(content) > 5:
      components = content[5]
    if marker == _SCAN and len(content) > 3 and content[-1] & 15 == 0:
      spectrum = range(content[-3], content[-2] + 1)
      done |= {(content[1 + 2 * i], k) for i in range((len(content) - 4) // 2) for k in spectrum}
  return len(done) == components * _COEFFICIENTS
