def by_supernodes(*a): raise NotImplementedError
def by_start_client(*a): raise NotImplementedError
