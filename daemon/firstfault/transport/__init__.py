"""The way from matchers to correlators: what travels, and what carries it."""
