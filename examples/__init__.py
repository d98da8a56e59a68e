"""Examples: what others may build upon denwatch."""
