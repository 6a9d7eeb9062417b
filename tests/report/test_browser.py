"""The page in a real browser: nothing on its console, no request, nothing wider than the screen."""

import json
import re
import shutil
import subprocess

import pytest

from tests.report import made_run
from vit_jax.report import document, report
from vit_jax.report.document import Section, Table

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
FLAGS = (
  "--headless --no-sandbox --disable-gpu --no-first-run --disable-extensions --disable-sync "
  "--disable-background-networking --disable-component-update --disable-default-apps "
  "--enable-logging=stderr --window-size=500,800 --dump-dom"
)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")

POLICY = re.compile("<meta http-equiv.*?>")  # it keeps scripts from running, also that of this test
ASK = """<script>addEventListener("load", () => { document.title = JSON.stringify({
  width: document.documentElement.scrollWidth,
  requests: performance.getEntriesByType("resource").map(each => each.name)})})</script>"""
BAD = (
  '<!DOCTYPE html><img src="http://127.0.0.1:9/seen.png"><p style="width: 9000px">wide'
  '<script>console.error("seen")</script>'
)


def printed(text, folder):
  """The number of pages of a page on paper."""
  folder.mkdir()
  (folder / "page.html").write_text(text)
  pdf = folder / "page.pdf"
  where = [f"--user-data-dir={folder}", f"--print-to-pdf={pdf}", (folder / "page.html").as_uri()]
  flags = [flag for flag in FLAGS.split() if flag != "--dump-dom"]
  done = subprocess.run([CHROMIUM, *flags, *where], capture_output=True, text=True, timeout=240)
  assert done.returncode == 0, done.stderr
  return len(re.findall(rb"/Type /Page\b", pdf.read_bytes()))


def opened(text, folder):
  """The browser's console and its document, after it opened a page."""
  folder.mkdir()
  (folder / "page.html").write_text(text)
  place = [f"--user-data-dir={folder}", (folder / "page.html").as_uri()]
  command = [CHROMIUM, *FLAGS.split(), *place]
  done = subprocess.run(command, capture_output=True, text=True, timeout=240)
  assert done.returncode == 0, done.stderr
  return re.findall(r"CONSOLE.*", done.stderr), done.stdout


def asked(text, folder):
  """What the page itself says: its width, and what it asked for."""
  _, document = opened(POLICY.sub("", text) + ASK, folder)
  return json.loads(re.search("<title>(.*?)</title>", document)[1])


def test_nothing_is_asked_for_and_nothing_is_wrong(tmp_path):
  folder = made_run.write(tmp_path / "run")
  made_run.write_set(folder, names=("<script>console.error(1)</script>", "b" * 300, "c"))
  text = report.html([folder], inside=False)
  console, document = opened(text, tmp_path / "first")
  assert console == []  # a request that the policy forbids would be named there
  assert "What it cost" in document
  found = asked(text, tmp_path / "second")
  assert [url for url in found["requests"] if not url.startswith("data:")] == []
  assert found["width"] <= 500  # wide tables scroll in themselves


def test_what_the_reader_opens_with_a_click_is_open_on_paper(tmp_path):
  rows = [(f"row {i}", ["a"]) for i in range(150)]
  section = Section("All", tables=[Table("Many", ["row", "letter"], rows, folded=True)])
  assert printed(document.html("Run", [section]), tmp_path / "paper") > 2


def test_the_browser_tells_what_is_wrong(tmp_path):
  console, _ = opened(BAD, tmp_path / "first")
  assert "seen" in console[0]
  found = asked(BAD, tmp_path / "second")
  assert found["requests"] == ["http://127.0.0.1:9/seen.png"]
  assert found["width"] >= 9000
