"""Networks: torsos, heads and parameter sharing."""
