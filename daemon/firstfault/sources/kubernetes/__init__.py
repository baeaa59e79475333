"""Pods and events as the API server tells them, for identity and for what Kubernetes itself did to a job."""
