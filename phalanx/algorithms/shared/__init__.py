"""The common parts of several algorithms."""
