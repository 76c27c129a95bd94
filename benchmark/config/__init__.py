"""What a run may be told: named settings, and the fields of a configuration in words."""
