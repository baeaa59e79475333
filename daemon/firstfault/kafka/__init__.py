"""Apache Kafka: raw logs in, observations between matchers and correlators, incidents out."""
