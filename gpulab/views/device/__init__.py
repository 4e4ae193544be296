"""What a device can do, beside others."""
