"""One run from its settings to its end: checks, the loop, and what surrounds it."""
