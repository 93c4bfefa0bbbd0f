"""What a model can do, one folder for each family of tools."""
