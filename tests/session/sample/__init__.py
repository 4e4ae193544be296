"""What watches a block, as somebody would add one: how little of it is glue is a test."""
