"""What Allswell is tested with, shipped so that what is built on it can be tested the same way."""
