"""A DENS node: matching, covering, ranking and services as pure libraries under one core."""
