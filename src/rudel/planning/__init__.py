"""Forecasts of how long a training takes: measured, simulated, compared."""
