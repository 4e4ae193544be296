"""What a device is: its facts and attributes."""
