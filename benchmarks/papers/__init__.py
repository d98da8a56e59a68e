"""The evaluations of the papers, rebuilt: each writes our figures beside the printed ones."""
