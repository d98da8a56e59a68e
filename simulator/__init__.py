"""The simulator: real node and watchdog cores in an emulated sparse network, in simulated time.

`site.py` alone is about real processes: sites of nodes for tests, benchmarks and the demo.
"""
