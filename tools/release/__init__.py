"""What a release is made with and checked by; nothing here is installed."""
