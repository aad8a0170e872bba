"""Learners that several algorithms are small variations of."""
