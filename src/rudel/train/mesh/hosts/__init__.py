"""The strategy `mesh` over the processes of several hosts: who they are, how they are started and looked after."""
