"""What learners keep: running statistics."""
