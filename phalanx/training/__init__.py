"""Training runs: the training loop, collectors of rollouts, evaluation and checkpoints."""
