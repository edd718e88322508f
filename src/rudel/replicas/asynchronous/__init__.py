"""The strategy `async`: replicas that merge when they arrive."""
