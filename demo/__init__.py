"""`make demo`: the path from words to a sensor and back, as far as it is built."""
