"""The page in a browser: nothing to scroll sideways, and what the first screen holds."""

import html
import json
import re
import shutil
import subprocess

import pytest
from PIL import Image

from tests.extras.report import made_run
from vit_jax.extras.report import report

SCREENS = ((1280, 900), (420, 900))
FLAGS = (
  *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
  *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
  *("--hide-scrollbars", "--dump-dom"),
)
# A page may look into its frames of srcdoc, and each has the width of a screen of its own.
MEASURE = """<script>
const above = (box, side) => box.bottom <= side.innerHeight && box.top >= 0;
onload = () => document.getElementById("found").textContent = JSON.stringify(Array.from(frames).map(
  side => ({
    width: side.document.documentElement.scrollWidth,
    screen: side.innerWidth,
    value: [...side.document.querySelectorAll(".value strong")]
      .filter(one => above(one.getBoundingClientRect(), side)).map(one => one.textContent),
    pictures: [...side.document.querySelectorAll(".tiles img")]
      .filter(one => one.naturalWidth && above(one.getBoundingClientRect(), side)).length,
  })));
</script><pre id="found"></pre>"""


def frame(page, width, height):
  style = f"width:{width}px;height:{height}px;border:0"
  return f'<iframe style="{style}" srcdoc="{html.escape(page)}"></iframe>'


@pytest.mark.skipif(not shutil.which("chromium"), reason="needs chromium")
def test_the_first_screen_of_a_desk_and_of_a_phone(tmp_path):
  names = [f"class {i} with a long name" for i in range(11)] + ["un" + "breakable" * 9]
  command = ["python", "vit-jax", "train", f"--config.data.train.source={'long/' * 60}"]
  start = made_run.START | {"typed": command}
  folders = [made_run.write(tmp_path / name, start=start) for name in "ab"]
  for folder in folders:
    made_run.write_set(folder, names=names)
  pages = [report.html(folders[:1], inside=False), report.html(folders, inside=False)]
  frames = [frame(page, *screen) for page in pages for screen in SCREENS]
  whole = tmp_path / "frames.html"
  whole.write_text("".join(frames) + MEASURE)
  shot = tmp_path / "shot.png"
  more = f"--user-data-dir={tmp_path / 'profile'}", f"--screenshot={shot}"
  size = "--window-size=1720,1800"
  done = subprocess.run(
    ["chromium", *FLAGS, *more, size, whole.as_uri()], capture_output=True, text=True, timeout=120
  )
  found = json.loads(re.search(r'id="found">(.*?)</pre>', done.stdout, re.DOTALL)[1])
  assert [one["screen"] for one in found] == [1280, 420] * 2
  assert all(one["width"] <= one["screen"] for one in found)
  assert [one["value"] for one in found[:2]] == [["75.0%"]] * 2
  assert [one["pictures"] for one in found[:2]] == [16] * 2
  with Image.open(shot) as image:
    assert image.size == (1720, 1800)
