"""Real servers for tests, and the tests that need them."""
