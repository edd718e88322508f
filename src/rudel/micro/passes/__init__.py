"""Passes that make a graph smaller or faster without changing a bit of its outputs."""
