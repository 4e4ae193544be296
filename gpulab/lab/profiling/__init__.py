"""What a program costs, added up: by kernel, copy, wait and range."""
