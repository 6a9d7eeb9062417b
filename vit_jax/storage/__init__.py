"""The files of a run: checkpoints with their checksums, metrics, the folder and its lock."""
