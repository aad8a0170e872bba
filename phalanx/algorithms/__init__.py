"""One file per algorithm, with what its paper adds. Algorithms never import each other."""
