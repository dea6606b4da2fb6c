"""What all trainings share: recipes, metrics, interruptions, and the name of the machine they run on."""
