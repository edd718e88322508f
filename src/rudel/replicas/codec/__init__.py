"""Pseudo-gradients as bytes: quantised, with a residual that is sent later."""
