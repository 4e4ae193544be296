"""The warp stepper: its data, its texts, its picture and its widget."""
