"""One file an algorithm: what its paper adds. Algorithms never import each other."""
