"""A mesh over the devices of several hosts."""
