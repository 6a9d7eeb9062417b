"""Callbacks that log a run to a library which keeps runs: one file each."""
