"""Verification: steps are computed twice and compared."""
