"""The presets: one YAML file each. This package holds data only."""
