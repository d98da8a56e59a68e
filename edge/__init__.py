"""Everything that runs at the edge: watchdogs, DENS nodes, rescue apps and the emulated field."""
