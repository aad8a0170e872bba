"""Fronts for programs that were not written for phalanx: SMAC's class, PettingZoo's, and numpy vectors."""

import logging

# PyMARL and its children set the root logger to DEBUG, and JAX would write hundreds of lines.
if logging.getLogger("jax").level == logging.NOTSET:
    logging.getLogger("jax").setLevel(logging.WARNING)
