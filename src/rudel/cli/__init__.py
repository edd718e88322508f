"""The command line: parses, calls the API, prints. No logic of its own."""
