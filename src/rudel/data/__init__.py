"""Examples: finding, checking and reading them."""
