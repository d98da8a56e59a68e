"""The device code's tests on the interpreters of real devices: unix, WebAssembly, micro:bit."""
