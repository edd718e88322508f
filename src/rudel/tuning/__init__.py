"""Sweeps: many trainings side by side, one a host at a time, with settings that Optuna chooses."""
