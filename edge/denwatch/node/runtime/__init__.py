"""A node as a process; `process.py` runs it, `build.py` puts it together from its configuration."""
