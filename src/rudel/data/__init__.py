"""How examples are found, checked and read."""
