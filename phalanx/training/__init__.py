"""The run: one carry, one scan over env.step, checkpoints, evaluation."""
