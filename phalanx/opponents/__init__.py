"""Who plays the other side: a frozen team, the learner itself, or its past selves.

An opponent is a policy with parameters. It acts inside the compiled program, in the same scan as the learner,
and what it keeps from one update to the next is part of the carry.
"""
