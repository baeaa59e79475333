"""Watch a job's vital signs in its ordinary lines: that it goes on, that no rank lags, that its numbers are sane."""
