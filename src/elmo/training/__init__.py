"""What every training has: a recipe, rows of figures, interruptions, and a machine that it runs on."""
