"""A small ObjectNet in the format of its release, with invented ImageNet names."""

import json
import pathlib

import cv2
import numpy as np

# Folder -> (ObjectNet's name, ImageNet's names of it).
CLASSES = {
  "bench": ("Bench", ["seat 7"]),
  "helmet": ("Helmet (any)", ["seat 900", "seat 3"]),
  "spoon": ("Spoon", []),
}
# The line of each ImageNet class among the names; it differs from the number of the class.
LINES = {i: (i * 7 + 13) % 1000 for i in range(1000)}


def write(root: pathlib.Path, images: dict[str, list[np.ndarray]]) -> None:
  """Writes the release; `images` are RGB images without the border, by folder."""
  for folder, several in images.items():
    (root / "images" / folder).mkdir(parents=True)
    for i, image in enumerate(several):
      bordered = cv2.copyMakeBorder(image, 1, 1, 1, 1, cv2.BORDER_CONSTANT, value=(255, 0, 0))
      file = root / "images" / folder / f"{i:03}.png"
      cv2.imwrite(str(file), cv2.cvtColor(bordered, cv2.COLOR_RGB2BGR))
  write_mappings(root / "mappings")


def write_mappings(folder: pathlib.Path, **replaced) -> None:
  """Writes the four mapping files; `replaced` gives other contents, by stem."""
  place = {line: i for i, line in LINES.items()}
  contents = {
    "folder_to_objectnet_label": {folder: name for folder, (name, _) in CLASSES.items()},
    "objectnet_to_imagenet_1k": {name: "; ".join(of) for name, of in CLASSES.values() if of},
    "pytorch_to_imagenet_2012_id": {str(i): line for i, line in LINES.items()},
    "imagenet_to_label_2012_v2": [f"seat {place[line]}" for line in range(1000)],
  } | replaced
  folder.mkdir(exist_ok=True)
  for stem, content in contents.items():
    if stem == "imagenet_to_label_2012_v2":
      (folder / stem).write_text("".join(f"{name}\n" for name in content))
    else:
      (folder / f"{stem}.json").write_text(json.dumps(content))
