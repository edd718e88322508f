"""`rudel doctor`: this computer, the choices that Rudel made for it, and requirements that features lack."""
