"""`python -m phalanx`, for where scripts are not on the path."""

from phalanx.cli import command

if __name__ == "__main__":
    command()
