"""Simulators. An author writes the rules; everything around them lives in `wrappers`."""
