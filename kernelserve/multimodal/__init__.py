"""Pictures on their way to a model: reading them, their identity, and the model's own processor in a helper process."""
