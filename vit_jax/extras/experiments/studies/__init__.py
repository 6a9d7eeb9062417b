"""Studies: many runs that become one table and one figure. `study.py` says what a study is."""

from vit_jax.extras.experiments.studies.study import (
  Cell,
  Choice,
  Drawing,
  Paper,
  Score,
  Stage,
  Study,
)

__all__ = ["Cell", "Choice", "Drawing", "Paper", "Score", "Stage", "Study"]
