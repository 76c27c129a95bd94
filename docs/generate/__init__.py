"""What `./run_all.sh docs` makes the site of."""
