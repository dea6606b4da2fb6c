"""What all trainings share: recipes, run folders, checkpoints, metrics, interruptions, and the machine's name."""
