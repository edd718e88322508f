"""Models that Keras runs on TensorFlow or PyTorch: trained on hosts by Keras' own steps, and evaluated by them here."""
