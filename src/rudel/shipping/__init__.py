"""Code, models and examples as bytes for other computers, and the packages that hosts need to read them."""
