"""The strategy `diloco`: replicas that merge in rounds."""
