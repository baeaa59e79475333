"""Sinks: where changes of incidents go. Each answers delivered, try again or refused; only it knows its protocol's codes."""
