"""Documents as text: PDF, office formats, books and notebooks."""
