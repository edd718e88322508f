"""What is sent to other computers: code, models and examples as bytes, and what hosts must have to read them."""
