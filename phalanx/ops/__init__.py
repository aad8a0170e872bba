"""Pure maths with shapes in every docstring; imports neither networks nor algorithms."""
