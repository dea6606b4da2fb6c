"""Drop-in replacements for the modules of older toolkits, and components for current libraries."""
