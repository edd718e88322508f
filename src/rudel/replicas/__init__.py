"""Replicas of a model, which train on many hosts and merge their pseudo-gradients."""
