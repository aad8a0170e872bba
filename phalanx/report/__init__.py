"""Output for people: metrics file, console, plots, images, pages."""
