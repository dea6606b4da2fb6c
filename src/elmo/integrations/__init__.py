"""Drop-in modules for code written for older toolkits, and components for programs of today."""
