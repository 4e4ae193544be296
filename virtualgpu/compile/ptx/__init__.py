"""PTX as text and as values: parsed, checked, inlined, its control flow known."""
