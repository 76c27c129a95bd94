"""The paper's synthetic linear study: Local, FedAvg, FedAvg+FT and PPFE as ridge regressions in closed form.

`model` draws the data, `ridge` holds the estimators, `study` the grid of points and its tidy table,
`figures` the two pictures. NumPy in float64 throughout; nothing here uses the engine's round loop.
"""
