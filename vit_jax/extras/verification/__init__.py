"""Steps that are computed twice."""
