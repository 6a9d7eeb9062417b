"""Names the pages that scroll sideways or lack a picture: python -m tests.pages.widths SITE.

SITE is the folder of a built site (`make docs`). Chromium shows each of its pages in a frame as
wide as a desktop's window and in one as wide as a telephone. Ends with 1 if it names a page.
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
CHROMIUM += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]

# Shows one page after another, and posts a line for each fault.
SCRIPT = """<!DOCTYPE html><body><script type="module">
const faults = [];
for (const width of WIDTHS) for (const page of PAGES) {
  const frame = Object.assign(document.createElement("iframe"), {width, height: 900, src: page});
  const shown = new Promise(done => frame.onload = done);
  document.body.append(frame);
  await shown;
  await new Promise(done => setTimeout(done, 100));  // its own script wraps tables
  const {documentElement, images} = frame.contentDocument;
  const own = documentElement.scrollWidth;
  if (own > frame.contentWindow.innerWidth) faults.push(`${page}: ${own} pixels wide in ${width}`);
  const missing = [...images].filter(image => !image.naturalWidth);
  faults.push(...missing.map(image => `${page}: no picture ${image.getAttribute("src")}`));
  frame.remove();
}
fetch("/", {method: "POST", body: JSON.stringify(faults)});
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


def faults_of(site: pathlib.Path) -> list[str]:
  """A line for each page and width that is at fault.

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
  faults = sorted(set(faults_of(site)))
  print(*faults, f"{len(pages_of(site))} pages, {len(faults)} faults", sep="\n")
  sys.exit(bool(faults))


if __name__ == "__main__":
  main()
