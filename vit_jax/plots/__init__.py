"""Pictures of a run's figures."""
