"""What this computer has, what Rudel made of it and why, and what is missing for which feature."""
