"""`python -m phalanx.cli`."""

from phalanx.cli import command

if __name__ == "__main__":
    command()
