"""`python -m rudel`, which does what the command `rudel` does."""

from rudel.cli.main import run

if __name__ == "__main__":
    run()
