"""`talaria setup`: interactive and scripted setup."""
