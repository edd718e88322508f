"""Recordings from the sensor of a board: the sketch that sends samples, their frames, and how they are cut."""
