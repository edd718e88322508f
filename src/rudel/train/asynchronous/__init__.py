"""Replicas that wait for nobody: each brings its delta when it is ready, and takes the weights of that moment."""
