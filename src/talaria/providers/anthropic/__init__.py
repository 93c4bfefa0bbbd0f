"""The Messages protocol of Anthropic."""
