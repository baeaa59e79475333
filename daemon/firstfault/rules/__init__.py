"""The encyclopedia: entries written in YAML, loaded, proven and printed."""
