"""Environments that are Python programs. Nothing here imports JAX, so that workers start quickly."""
