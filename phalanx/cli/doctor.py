"""`phalanx doctor`: examine this machine."""

from phalanx.cli.parsing import Parser


def run(words: list[str]) -> int:
    """Do what the words say; returns the exit code."""
    Parser(
        prog="phalanx doctor", description="Say what this machine has, and train for a few seconds."
    ).parse(words)
    from phalanx.report.doctor import examine

    return examine()
