"""Where a task model's ELMo vectors come from: computed when needed, cached on disk, or from a biLM trained along."""
