"""The daemon: sources, pipeline, store, sinks and web put together; the only place that knows both asyncio and the pipeline."""
