"""The run: one carry, one scan over compiled environments, one loop over hosted ones, checkpoints."""
