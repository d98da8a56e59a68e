"""The sub-commands of `denwatch` that need Spark."""
