"""One module for each family of operators: what it computes, in C."""
