"""The warp stepper: its data, texts, picture and widget."""
