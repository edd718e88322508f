"""How long a training will take, on which hosts, by which strategy, before it is begun."""
