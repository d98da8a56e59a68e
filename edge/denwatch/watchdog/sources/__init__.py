"""Where readings come from: one small interface, one file for each kind of sensor."""
