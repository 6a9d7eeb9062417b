"""Many runs, each a process of its own: sweeps and benchmarks."""
