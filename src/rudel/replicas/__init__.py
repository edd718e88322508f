"""Replicas of a model that train on many hosts and merge what they learned."""
