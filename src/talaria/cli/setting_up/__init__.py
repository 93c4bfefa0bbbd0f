"""The steps of `talaria setup`: what is asked, tried out and written."""
