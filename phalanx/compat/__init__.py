"""Interfaces for other programs: the classes of SMAC, SMACv2 and on-policy, PettingZoo, and numpy vectors."""

import logging

# PyMARL and its children set the root logger to DEBUG, and JAX would write hundreds of lines.
if logging.getLogger("jax").level == logging.NOTSET:
    logging.getLogger("jax").setLevel(logging.WARNING)
