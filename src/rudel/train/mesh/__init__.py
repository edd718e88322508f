"""One program over a mesh of devices, of one host or of several: batches are cut, and where asked for weights too."""
