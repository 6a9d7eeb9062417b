"""What the documents name is there: files, links, modules, settings, tests, flags, messages."""

import ast
import functools
import pathlib
import re

import vit_jax
from tests.pages import blocks
from vit_jax.extras.settings_page import keys

ROOT = pathlib.Path(__file__).parents[1]
PAGES = {
  str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
  for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
}
OF_TODAY = {page: text for page, text in PAGES.items() if page != "CHANGELOG.md"}

CODE = re.compile(r"^```.*?^```", flags=re.DOTALL | re.MULTILINE)
LINK = re.compile(r"(?:\]\(|src=\")([^)#\s\"]+)")
FILE = re.compile(r"(?<![\w./])((?:configs|tools|docs)/[\w/]+\.(?:py|md|csv))\b(?!::)")
MODULE = re.compile(r"(?<![\w./])(?:vit_jax/)?((?:\w+/)+\w+\.py)\b")
TEST = re.compile(r"`(?:tests/)?((?:\w+/)*test_\w+\.py)?(?:::(test_\w+))?`")
SETTING = re.compile(r"\bconfig\.([a-z_]+(?:\.[a-z_0-9]+)*)(?![\w/])(?!\()")
COMMAND = re.compile(r"(?:python (?:tools/\w+\.py|-m vit_jax\.main)|vit-jax [a-z-]+)[^\n`|]*")
FLAG = re.compile(r"(?<=\s)--(?!config\.)([a-z][\w-]*)")
VERSION = re.compile(r"\b(?<!-)(datasets|libtpu|timm|torch|transformers) (\d+(?:\.\d+)+)")
# config.json and config.py; any setting at all; those of google-research/vision_transformer.
NO_SETTINGS = {"json", "py", "a.b", "x.y", "dataset", "pretrained_dir"}


def missing(pages, pattern, is_there):
  """{page: what it names that is not there}."""
  found = {page: {name for name in pattern.findall(text) if name} for page, text in pages.items()}
  absent = {page: {name for name in found[page] if not is_there(page, name)} for page in found}
  return {page: names for page, names in absent.items() if names}


def test_every_block_of_code_is_run_or_shown_or_says_why_not():
  """`bash` and `python` are run by `python -m tests.pages`; tests/pages/blocks.py has the marks."""
  for page, text in PAGES.items():
    for block in blocks.blocks(text):
      assert block.language in ("bash", "python", "text"), f"{page}:{block.line} names no language"
      reason = block.marks.get("not run", blocks.REASONS[0])
      assert reason.startswith(blocks.REASONS), f"{page}:{block.line}: {reason}"


def test_links_lead_to_files():
  """Those of docs/, and their anchors, are also checked by `make docs`."""
  pages = {page: CODE.sub("", text) for page, text in PAGES.items()}
  there = lambda page, link: "://" in link or ((ROOT / page).parent / link).exists()
  assert missing(pages, LINK, there) == {}


def test_files_that_are_named_are_there():
  """Also below tests/, as tools/test_cost.py; configs/NAME.py is any recipe."""
  there = lambda _, path: any((root / path).exists() for root in (ROOT, ROOT / "tests"))
  assert missing(OF_TODAY, FILE, lambda *args: args[1].endswith("/NAME.py") or there(*args)) == {}


def test_files_of_the_makefile_are_there():
  text = (ROOT / "Makefile").read_text()
  named = re.findall(r"(?<![\w./])(?:tests|tools|docs|configs)/[\w/.]*\w", text)
  assert named
  assert [path for path in named if not (ROOT / path).exists()] == []


def test_modules_that_are_named_are_there():
  """Such as `models/vit.py`, of vit_jax; tests that mirror them are named in the same way."""
  rooms = {folder.name for folder in (ROOT / "vit_jax").iterdir() if folder.is_dir()}

  def there(_, path):
    mirrors = (ROOT / "vit_jax", ROOT / "tests")
    return path.split("/")[0] not in rooms or any((root / path).exists() for root in mirrors)

  assert missing(OF_TODAY, MODULE, there) == {}


def test_tests_that_are_named_are_there():
  """Such as `torture/test_kills.py`, `test_resume.py::test_a` and, after it, `::test_b`."""
  absent = []
  for page, text in OF_TODAY.items():
    texts = []
    for path, test in TEST.findall(text):
      texts = [file.read_text() for file in (ROOT / "tests").rglob(path)] if path else texts
      if (path and not texts) or (test and not any(f"def {test}(" in text for text in texts)):
        absent.append((page, path, test))
  assert absent == []


def test_settings_that_are_named_exist():
  assert missing(OF_TODAY, SETTING, lambda _, key: key in NO_SETTINGS or is_setting(key)) == {}


def is_setting(key):
  """Whether it is a setting or a group of them; names that recipes give are not looked at."""
  return any(re.fullmatch(known.replace("NAME", r"\w+"), f"config.{key}") for known in keys())


@functools.cache
def texts_of_the_code():
  files = [*ROOT.glob("vit_jax/**/*.py"), *ROOT.glob("tools/**/*.py")]
  trees = [ast.parse(file.read_text(encoding="utf-8")) for file in files]
  constants = (node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant))
  return {node.value for node in constants if isinstance(node.value, str)}


def test_flags_of_commands_exist():
  """As argparse defines them, with dashes, or as absl does, without."""
  pages = {page: text.replace("\\\n", "") for page, text in OF_TODAY.items()}
  commands = {page: "\n".join(COMMAND.findall(text)) for page, text in pages.items()}
  texts = texts_of_the_code()
  assert len(FLAG.findall("\n".join(commands.values()))) > 50
  assert missing(commands, FLAG, lambda _, flag: texts & {flag, f"--{flag}"}) == {}


def test_messages_of_the_troubleshooting_page_are_those_of_the_code():
  cells = re.findall(r"^\| (`.*?) \|", PAGES["docs/troubleshooting.md"], flags=re.MULTILINE)
  messages = {message for cell in cells for message in re.findall(r"`([^`]+)`", cell)}
  parts = {part.strip(" ()") for message in messages for part in message.split("…")}
  texts = "\n".join(texts_of_the_code())
  assert len(messages) > 20
  assert sorted(part for part in parts if part not in texts) == []


def test_versions_that_pages_name_are_those_that_the_checks_install():
  lines = (ROOT / ".ci" / "constraints.txt").read_text().splitlines()
  pins = dict(line.split("==") for line in lines if not line.startswith("#"))
  named = {pair for text in OF_TODAY.values() for pair in VERSION.findall(text)}
  assert {name for name, _ in named} == set(pins)
  wrong = [(n, v) for n, v in named if not f"{pins[n]}.".startswith(f"{v}.")]
  assert wrong == []


def test_the_version_is_that_of_the_newest_release_and_of_the_citation():
  """Runs record it."""
  released = re.search(r"^## (\S+) - ", PAGES["CHANGELOG.md"], re.MULTILINE)
  cited = re.search(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
  assert vit_jax.__version__ == released[1] == cited[1]
