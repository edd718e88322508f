"""Nets for recipes: from images (H, W, 3) between -1 and 1 to features, by name, and weights for them from files."""
