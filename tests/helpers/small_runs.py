"""A run of a second on digits, as fields of a configuration and as flags; for processes of their own."""

SMALL = {
    "dataset": "digits",
    "clients": 6,
    "samples_per_client": 20,
    "test_samples_per_client": 10,
    "rounds": 2,
    "local_epochs": 1,
}
FLAGS = [f"--{name.replace('_', '-')}={value}" for name, value in SMALL.items()]
