"""PTX as text and as values: parsed, checked and inlined, with its control flow."""
