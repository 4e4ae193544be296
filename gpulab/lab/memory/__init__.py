"""Memory: live chart, allocator map, report, ladder."""
