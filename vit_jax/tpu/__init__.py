"""The step as it is compiled for TPUs that are not there."""
