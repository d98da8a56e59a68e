"""What runs on the sensor: subscriptions from the air, evaluated where the reading is made."""
