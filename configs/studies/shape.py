"""The shape of a ViT: depth, width, MLP, patch size, and all together (Figure 8, Appendix D.2).

  vit-jax study --study=configs/studies/shape.py
  vit-jax study --study=configs/studies/shape.py --scale=paper --plan

small: ViTs around one of 4 blocks, D 64, MLP 128 and patches of 7 pixels on Fashion-MNIST, 21
shapes x 3 seeds of 500 steps; top-1 of the test images.
paper: 22 ViTs around one of 8 blocks, D 1024, MLP 2048 and patches of 32 pixels on JFT-300M, 7
epochs; 5-shot ImageNet. Give the data, which is not public: --config.data.train.source=..., as for
configs/vit_shape_jft.py.

Nothing is chosen: every cell has the settings of the recipe. A dimension is doubled or halved, at
the paper's scale up to 64 blocks. A head has 64 dimensions, or 16 at the small scale. All together
are scaled by 1/4, 1/2, 3/2 and 2; the patches then have the nearest size, by ratio, that tiles the
image. The base is a point of every curve, and is trained once.

The paper draws its results against compute, and gives no numbers. It finds that depth helps most,
up to 64 blocks but less beyond 16; that width helps least; that smaller patches help without more
parameters; and that scaling all together helps too.
"""

from vit_jax.extras.experiments.studies import Cell, Drawing, Score, Stage, Study, transfer

SMALL = {
  "model.name": "ViT-Ti/4",
  "duration.steps": 500,
  "schedule.warmup.steps": 50,
  "evaluate_every.steps": 500,
  "checkpoint.every.steps": 500,
}


def sizes(depth: int, width: int, mlp_dim: int, patch: int) -> dict:
  """A shape; the patch is in pixels."""
  return dict(depth=depth, width=width, mlp_dim=mlp_dim, patch=patch)


def curves(base: dict, ways: dict, together: dict) -> dict[str, tuple[str, dict]]:
  """{label: (what is scaled, the shape)}.

  Args:
    base: the shape in the middle.
    ways: {dimension: its sizes}, each with the base's own.
    together: {factor: a shape}.
  """
  alone = {f"{key} {size}": (key, base | {key: size}) for key in ways for size in ways[key]}
  return alone | {f"all x {factor}": ("all", shape) for factor, shape in together.items()}


def cells(recipe: str, settings: dict, shapes: dict, head: int) -> tuple[Cell, ...]:
  """A cell for each point of each curve; those of one shape share its runs."""
  compared = []
  for label, (scaled, shape) in shapes.items():
    changes = {f"model.{key}": size for key, size in shape.items()}
    changes["model.heads"] = shape["width"] // head
    name = "_".join(map(str, shape.values()))
    compared.append(
      Cell(label, Stage(recipe, settings | changes, name), {"scaled": scaled, **shape})
    )
  return tuple(compared)


def small() -> Study:
  """On two CPU cores."""
  base = sizes(4, 64, 128, 7)
  ways = dict(
    depth=(1, 2, 4, 8, 16),
    width=(16, 32, 64, 128, 256),
    mlp_dim=(32, 64, 128, 256, 512),
    patch=(28, 14, 7, 4, 2),
  )
  together = {
    "1/4": sizes(1, 16, 32, 28),
    "1/2": sizes(2, 32, 64, 14),
    "1": base,
    "3/2": sizes(6, 96, 192, 4),
    "2": sizes(8, 128, 256, 4),
  }
  return Study(
    cells=cells("configs/vit_fashion.py:plain", SMALL, curves(base, ways, together), head=16),
    drawing=Drawing(x="exaflops", by="scaled", log=True, label="top-1, Fashion-MNIST"),
  )


def paper() -> Study:
  """On a pod."""
  base = sizes(8, 1024, 2048, 32)
  ways = dict(
    depth=(2, 4, 8, 16, 32, 64),
    width=(256, 512, 1024, 2048, 4096),
    mlp_dim=(512, 1024, 2048, 4096, 8192),
    patch=(112, 56, 32, 16, 8),
  )
  together = {
    "1/4": sizes(2, 256, 512, 112),
    "1/2": sizes(4, 512, 1024, 56),
    "1": base,
    "3/2": sizes(12, 1536, 3072, 28),
    "2": sizes(16, 2048, 4096, 16),
  }
  return Study(
    cells=cells(
      "configs/vit_shape_jft.py:base", transfer.PROBE, curves(base, ways, together), head=64
    ),
    drawing=Drawing(x="exaflops", by="scaled", log=True, label="5-shot ImageNet"),
    score=Score("imagenet/5shot"),
    seeds=1,
  )
