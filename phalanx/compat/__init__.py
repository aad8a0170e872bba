"""Fronts for programs that were not written for phalanx: SMAC's class, PettingZoo's, and numpy vectors."""
