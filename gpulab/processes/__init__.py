"""The process that an answer runs in: how it is started, limited, spoken to and ended."""
