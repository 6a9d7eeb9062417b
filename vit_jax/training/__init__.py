"""One training run, from its settings to its end: checks, the loop, logging, saving."""
