"""Other computers: hosts reached over SSH, their set-up, and the engine that runs on them."""
