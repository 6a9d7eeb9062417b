"""Update rules, one file each: its settings and its part of the chain of an update."""
