"""Seeded checkpoints in the full depth of the published models, which the parity tests cut to a few layers."""

from dataclasses import replace

from parity import configurations

NAMES = {configuration.short_name: configuration for configuration in configurations.CONFIGURATIONS}


def make(name, parent):
    """The folder of the checkpoint in `parent`; made if it is not there already."""
    import checkpoint  # torch and transformers: only where a model is wanted

    configuration = NAMES[name]
    return checkpoint.make(replace(configuration, layers=configuration.published_layers), parent)
