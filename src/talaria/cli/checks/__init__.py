"""What `talaria doctor` looks at, a module for each part of the house."""
