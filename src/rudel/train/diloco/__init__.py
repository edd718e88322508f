"""Low-communication training: rounds of local steps, compressed deltas, an outer step that all take alike."""
