"""What a page takes as given: a checkout, and what a reader has, such as photographs or a run."""

import os
import pathlib
import shutil
import subprocess
from collections.abc import Sequence

HERE = pathlib.Path(__file__).parent
SHORT = "--config.duration.epochs=0 --config.duration.steps=60 --config.schedule.warmup.steps=5"

PREPARE = "vit-jax prepare images"
HALF = "--split=train=tfds:fashion_mnist --split=test=tfds:fashion_mnist --classes"


def stand_in(name: str) -> str:
  """Commands that prepare a stand-in for a dataset of TFDS."""
  splits = " ".join(f"--split {each}=parquet:$HERE/{each}.parquet" for each in ("train", "test"))
  drawn = "python $TREE/tests/pages/fashion.py"
  return f"{drawn}; cd $TREE; {PREPARE} {name} {splits}; rm $HERE/*.parquet"


# name: commands that make it, in an empty folder whose content is put into the checkout.
MATERIAL = {
  "photos": "python3 $TREE/tests/pages/photos.py",
  "tables": "python -m pip install --quiet datasets; python $TREE/tests/pages/tables.py",
  "demo": "python -m vit_jax.main --config=$TREE/configs/vit_digits.py "
  f"--workdir=workdirs/vit_digits {SHORT}",
  "fashion": stand_in("fashion_mnist"),
  "cifar10": stand_in("cifar10"),
  "fashion_run": "python -m vit_jax.main --config=$TREE/configs/vit_fashion.py:plain "
  f"--workdir=workdirs/vit_fashion-plain {SHORT}",
  "halves": f"cd $TREE; {PREPARE} fashion_first {HALF} T-shirt/top Trouser Pullover Dress Coat; "
  f"{PREPARE} fashion_second {HALF} Sandal Shirt Sneaker Bag 'Ankle boot'",
  "folders": "python $TREE/tests/pages/digits.py",
  "libtpu": "python -m pip install --quiet --target .libtpu libtpu==0.0.51",
  "weights": "python $TREE/tests/pages/weights.py",
}


def tree(root: pathlib.Path, folder: pathlib.Path):
  """Makes FOLDER/tree, a repository with one commit: the files of this one as they are."""
  listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
  names = subprocess.run(listed, cwd=root, check=True, capture_output=True, text=True).stdout
  target = folder / "tree"
  shutil.rmtree(target, ignore_errors=True)
  for name in filter(None, names.split("\0")):
    if (root / name).is_file():
      (target / name).parent.mkdir(parents=True, exist_ok=True)
      shutil.copy2(root / name, target / name)
  who = ["-c", "user.name=pages", "-c", "user.email=pages@localhost"]
  for command in (["init", "--quiet"], ["add", "--all"], [*who, "commit", "--quiet", "-m", "tree"]):
    subprocess.run(["git", *command], cwd=target, check=True)


def checkout(folder: pathlib.Path, place: pathlib.Path) -> pathlib.Path:
  """A clone of the tree in PLACE, with the environment of all pages."""
  subprocess.run(
    ["git", "clone", "--quiet", str(folder / "tree"), str(place / "vit_jax")], check=True
  )
  (place / "vit_jax" / ".venv").symlink_to(environment(folder))
  return place / "vit_jax"


def environment(folder: pathlib.Path) -> pathlib.Path:
  """FOLDER/venv, made as `make demo` makes it, if it is not there."""
  path = folder / "venv"
  if not (path / "installed").exists():
    subprocess.run(["make", f"VENV={path}", f"{path}/installed"], cwd=folder / "tree", check=True)
  return path


def made(names: Sequence[str], folder: pathlib.Path) -> list[pathlib.Path]:
  """FOLDER/given/NAME of each, made if it is not there; each may read what is before it."""
  return [_made(name, names[:number], folder) for number, name in enumerate(names)]


def _made(name: str, before: Sequence[str], folder: pathlib.Path) -> pathlib.Path:
  path = folder / "given" / name
  if path.exists():
    return path
  path.mkdir(parents=True)
  data = folder / "tfds" / name
  datasets(before, folder, data)
  variables = {"TREE": folder / "tree", "HERE": path, "PYTHONPATH": folder / "tree"}
  variables["TFDS_DATA_DIR"] = data
  if name != "photos":
    variables["PATH"] = f"{environment(folder) / 'bin'}:{os.environ['PATH']}"
  given = os.environ | {key: str(value) for key, value in variables.items()}
  command = ["bash", "-e", "-o", "pipefail", "-c", MATERIAL[name]]
  subprocess.run(command, cwd=path, env=given, check=True)
  return path


def datasets(names: Sequence[str], folder: pathlib.Path, place: pathlib.Path):
  """Copies into PLACE the datasets that some material has prepared, and no others."""
  for name in names:
    if (folder / "tfds" / name).exists():
      shutil.copytree(folder / "tfds" / name, place, dirs_exist_ok=True)
