"""What `denwatch device` does: a watchdog's configuration from words, and its code on a board.

`words` reads sentences such as "patient_temperature from ds18x20 on pin 4"; `sensors` knows what
there is to connect, `fields`, `steps` and `sources` work out what a sentence means for it; `config`
puts a configuration together, `check` refuses a bad one. `wizard` asks for the same, `writing` is
the command's own form, `parts` what both share. `images` compiles the watchdog, which `shrink` has
made small.
"""
