"""Front doors: they translate between the world and the watch, and decide nothing."""
