"""Evaluations: functions from parameters and data to figures."""
