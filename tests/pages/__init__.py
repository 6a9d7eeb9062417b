"""Runs the commands of the pages, as a reader pastes them: `python -m tests.pages`."""
