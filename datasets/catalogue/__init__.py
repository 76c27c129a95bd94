"""One file per dataset; each defines `INFO`, a `DatasetInfo`, and is registered by being here."""
