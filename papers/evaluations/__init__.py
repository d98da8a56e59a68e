"""The papers' evaluations, rebuilt: each beside the paper's own figures."""
