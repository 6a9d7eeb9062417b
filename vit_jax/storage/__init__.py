"""All that is written of a run: checkpoints with their sums, metrics, the folder and its lock."""
