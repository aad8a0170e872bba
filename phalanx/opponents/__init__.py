"""Opponents, which play the other side: a frozen team, the learner itself, or its earlier checkpoints.

An opponent is a policy with parameters. It acts inside the compiled program, in the same scan as the learner,
and its state between updates is part of the carry.
"""
