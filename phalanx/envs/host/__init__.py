"""Python environments. Nothing here imports JAX, so that workers start quickly."""
