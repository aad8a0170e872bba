"""Torsos, heads, and the one file that knows who shares parameters."""
