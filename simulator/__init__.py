"""The field: real node and watchdog cores in an emulated sparse network, in simulated time."""
