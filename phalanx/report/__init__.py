"""What people look at: metrics file, console, plots, pictures."""
