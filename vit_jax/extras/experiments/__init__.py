"""Many runs, each in its own process: studies, sweeps, VTAB-1k."""
