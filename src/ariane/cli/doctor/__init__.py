"""`ariane doctor`: checks of the machine, the settings, the store and the cluster."""
