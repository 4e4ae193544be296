"""Pictures of the software layers that a call uses."""
