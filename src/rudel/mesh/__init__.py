"""The strategy `mesh`: one SPMD program over many devices, on one host or several."""
