"""What `denwatch device` does: a watchdog's configuration from sentences, and its code on a board.

`sentences` reads "patient_temperature from ds18x20 on pin 4"; `channels` works out what it means
for a sensor; `config` builds and writes watchdog.json; `schema` knows the sensors and checks a
whole configuration; `wizard` asks for one, or reads it from options; `images` compiles the code.
"""
