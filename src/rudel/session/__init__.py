"""A training: `Session`, which all have in common, and `Engine`, which takes the steps."""
