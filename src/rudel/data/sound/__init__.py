"""Recordings of sound: decoded, resampled, cut or padded to windows; as examples and as records."""
