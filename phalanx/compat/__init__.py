"""Fronts for programs that were not written for phalanx: SMAC's own class, and vectors of numpy arrays."""
