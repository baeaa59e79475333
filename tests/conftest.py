"""What all tests share: the plugin that speaks up when a real server is missing, and the fixtures that start one."""

pytest_plugins = ["tests.services.plugin", "tests.services.real", "tests.services.broker"]
