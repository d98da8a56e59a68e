"""The node's own MQTT 3.1.1 server: packets and sessions without I/O, and a listener for sockets.

server = MqttServer(rules)
listener = Listener(on_input, server.budget)  # calls on_input(inputs) with all that arrived
outputs = server.take(input, now)   # perform the writes, commit, then listener.perform(outputs)
"""
