"""The page to draw on, where a model guesses; from a small server of its own, or as a folder for any web server."""
