"""A view of ordinary kind as somebody would add one: how little it costs is a test."""
