"""What the documents name is there: files, links, settings, messages."""

import ast
import pathlib
import re

import pytest

from vit_jax import config

ROOT = pathlib.Path(__file__).parents[1]
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
PLACEHOLDERS = ("a.b", "x.y")  # in place of the name of a setting
OF_TODAY = [page for page in PAGES if page.name != "CHANGELOG.md"]


def name(page):
  return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_to_files(page):
  """Those of docs/ and their anchors are also checked by `make docs`."""
  text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
  links = re.findall(r"\]\(([^)\s]+)\)|src=\"([^\"]+)\"", text)
  paths = [link.partition("#")[0] for pair in links for link in pair if link]
  local = [path for path in paths if path and "://" not in path]
  assert [path for path in local if not (page.parent / path).exists()] == []


@pytest.mark.parametrize("page", OF_TODAY, ids=name)
def test_files_that_are_named_are_there(page):
  text = page.read_text(encoding="utf-8")
  named = set(re.findall(r"(?<![\w./])((?:configs|tools|docs)/[\w/]+\.(?:py|md|csv))\b(?!::)", text))
  missing = {path for path in named if not (ROOT / path).exists()}
  assert {path for path in missing if not is_test(path) and not path.endswith("/NAME.py")} == set()


def is_test(path):
  return (ROOT / "tests" / path).exists()


@pytest.mark.parametrize("page", OF_TODAY, ids=name)
def test_tests_that_are_named_are_there(page):
  """Such as `torture/test_kills.py`, `test_resume.py::test_a` and, after it, `::test_b`."""
  file, missing = None, []
  named = r"`(?:tests/)?((?:\w+/)*test_\w+\.py)?(?:::(test_\w+))?`"
  for path, test in re.findall(named, page.read_text(encoding="utf-8")):
    file = ROOT / "tests" / path if path else file
    text = file.read_text(encoding="utf-8") if file and file.exists() else None
    if (path and text is None) or (test and f"def {test}(" not in (text or "")):
      missing.append((path, test))
  assert missing == []


@pytest.mark.parametrize("page", OF_TODAY, ids=name)
def test_settings_that_are_named_exist(page):
  text = page.read_text(encoding="utf-8")
  named = set(re.findall(r"\bconfig\.([a-z_]+(?:\.[a-z_0-9]+)*)(?![\w/])(?!\()", text))
  assert sorted(key for key in named if not is_setting(key)) == []


def is_setting(key):
  """Whether it is a setting, a group of them, or a file such as config.json."""
  if key in ("json", "py") or key in PLACEHOLDERS:
    return True
  node, path = config.to_dict(config.Config()), "config"
  for part in key.split("."):
    node = config.NAMED[path] if path in config.NAMED else node.get(part)
    if node is None:
      return False
    path = f"{path}.{part}"
    node = node if isinstance(node, dict) else {}
  return True


def quoted_messages():
  page = (ROOT / "docs/troubleshooting.md").read_text(encoding="utf-8")
  cells = re.findall(r"^\| (`.*?) \|", page, flags=re.MULTILINE)
  return [message for cell in cells for message in re.findall(r"`([^`]+)`", cell)]


def texts_of_the_code():
  files = [*ROOT.glob("vit_jax/**/*.py"), *ROOT.glob("tools/*.py")]
  trees = [ast.parse(file.read_text(encoding="utf-8")) for file in files]
  constants = (node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant))
  return "\n".join({node.value for node in constants if isinstance(node.value, str)})


def test_messages_of_the_troubleshooting_page_are_those_of_the_code():
  texts, messages = texts_of_the_code(), quoted_messages()
  assert len(messages) > 50
  parts = {
    part.strip(" ()")
    for message in messages
    for part in re.split("…", message.removesuffix("…"))
    if message != "Error 75"  # of make
  }
  assert sorted(part for part in parts if part not in texts) == []
