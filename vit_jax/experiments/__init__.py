"""Sweeps and benchmarks of many runs, each in its own process."""
