"""Names the pages that scroll sideways: python -m tests.pages.widths SITE.

SITE is the folder of a built site (`make docs`). Chromium shows each of its pages in a frame as
wide as a desktop's window and in one as wide as a telephone. Ends with 1 if a page is wider.
"""

import functools
import http.server
import json
import pathlib
import subprocess
import sys
import tempfile
import threading

WIDTHS = (1400, 420)  # pixels
SECONDS = 600.0  # that all pages may take
MEASURING = "/measuring.html"
CHROMIUM = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"]

# Shows one page after another, and posts [width, page, width of the page] of those that are wider.
SCRIPT = """<!DOCTYPE html><body><script type="module">
const wide = [];
for (const width of WIDTHS) for (const page of PAGES) {
  const frame = Object.assign(document.createElement("iframe"), {width, height: 900, src: page});
  const shown = new Promise(done => frame.onload = done);
  document.body.append(frame);
  await shown;
  await new Promise(done => setTimeout(done, 100));  // its own script wraps tables
  const found = frame.contentDocument.documentElement.scrollWidth;
  if (found > frame.contentWindow.innerWidth) wide.push([width, page, found]);
  frame.remove();
}
fetch("/", {method: "POST", body: JSON.stringify(wide)});
</script>"""


class Handler(http.server.SimpleHTTPRequestHandler):
  """Serves a site and the page that measures it, and takes what that page posts."""

  def __init__(self, *args, script: str, posted: list, done: threading.Event, **kwargs):
    self.script, self.posted, self.done = script, posted, done
    super().__init__(*args, **kwargs)

  def do_GET(self):
    if self.path != MEASURING:
      super().do_GET()
      return
    self.send_response(200)
    self.send_header("Content-Type", "text/html")
    self.end_headers()
    self.wfile.write(self.script.encode())

  def do_POST(self):
    self.posted.extend(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
    self.send_response(204)
    self.end_headers()
    self.done.set()

  def log_message(self, *_):
    """Keeps quiet about requests."""


def pages_of(site: pathlib.Path) -> list[str]:
  """The addresses of a site's pages."""
  return sorted(f"/{path.parent.relative_to(site)}/" for path in site.rglob("index.html"))


def wider(site: pathlib.Path) -> list[tuple[int, str, int]]:
  """(Width of the frame, page, its own width) of the pages that do not fit.

  Raises:
    TimeoutError: Chromium did not show all pages in time.
  """
  script = SCRIPT.replace("WIDTHS", str([*WIDTHS])).replace("PAGES", json.dumps(pages_of(site)))
  posted, done = [], threading.Event()
  handler = functools.partial(Handler, directory=str(site), script=script, posted=posted, done=done)
  with (
    http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server,
    tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile,
  ):
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}{MEASURING}"
    options = ["--remote-debugging-port=0", f"--user-data-dir={profile}"]  # it stays until told
    browser = subprocess.Popen([*CHROMIUM, *options, address], stderr=subprocess.DEVNULL)
    finished = done.wait(SECONDS)
    browser.terminate()
    browser.wait()
    server.shutdown()
  if not finished:
    raise TimeoutError(f"The pages were not shown in {SECONDS:.0f} s.")
  return posted


def main():
  """Measures the site that is named."""
  site = pathlib.Path(sys.argv[1]).resolve()
  found = wider(site)
  for width, page, own in found:
    print(f"{page} is {own} pixels wide in a window of {width}")
  print(f"{len(pages_of(site))} pages, {len(found)} wider than the window")
  sys.exit(bool(found))


if __name__ == "__main__":
  main()
